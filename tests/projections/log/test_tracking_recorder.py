"""The eventsourcing library's own case for tracking recorders, unmodified, on the index."""

import unittest
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from eventsourcing.persistence import TrackingRecorder
from tests.support.naive_index import opened

with warnings.catch_warnings():
    # Importing it calls `warnings.resetwarnings()`.
    from eventsourcing.tests import persistence as cases

if TYPE_CHECKING:
    Case = unittest.TestCase
else:
    Case = cases.TrackingRecorderTestCase


class TestIndex(Case):
    def create_recorder(self) -> TrackingRecorder:
        folder = Path(self.enterContext(TemporaryDirectory()))
        return self.enterContext(opened(folder))
