"""Administration: backups read back and restored, diagnosis and repair, replicas, speed on this machine."""
