// What the JavaScript client of LangGraph sees of runs: a JSON object.
import { Client } from "@langchain/langgraph-sdk";

const apiUrl = process.argv.at(-1);
const cuts = { left: 0, after: Infinity };
/** A connection that is lost in the middle of a stream, as often as `cuts.left` says. */
const cutting = async (url, init) => {
  const answer = await fetch(url, init);
  if (!cuts.left || !answer.headers.get("content-type")?.startsWith("text/event-stream")) return answer;
  cuts.left -= 1;
  let seen = 0;
  const cut = new TransformStream({
    transform(chunk, controller) {
      controller.enqueue(chunk);
      seen += 1;
      if (seen >= cuts.after) controller.error(new TypeError("terminated"));
    },
  });
  return new Response(answer.body.pipeThrough(cut), { status: answer.status, headers: answer.headers });
};
const client = new Client({ apiUrl, callerOptions: { fetch: cutting } });
const say = (text) => ({ messages: [{ role: "user", content: text }] });
const read = async (stream) => {
  const found = [];
  for await (const event of stream) found.push(event);
  return found;
};
const texts = (values) => values.messages.map((one) => one.content);
const names = (events) => events.map((one) => one.event);
const told = {};

// Streams, in the modes asked for.
const { thread_id } = await client.threads.create();
let run;
const onRunCreated = (made) => (run = made);
const modes = ["values", "updates", "messages-tuple", "custom"];
const streamed = await read(
  client.runs.stream(thread_id, "agent", { input: say("tick 2"), streamMode: modes, onRunCreated }),
);
told.streamed = [...new Set(names(streamed))].sort();
told.last = texts(streamed.findLast((one) => one.event === "values").data);
told.joined = names(await read(client.runs.joinStream(thread_id, run.run_id, { lastEventId: "-1" }))).length;
told.whole = streamed.length;

// A lost connection: the client comes back with the last id, and misses nothing.
[cuts.left, cuts.after] = [2, 3];
const lost = await read(
  client.runs.stream(thread_id, "agent", { input: say("tick 40"), streamMode: "custom", streamResumable: true }),
);
told.lost = lost.filter((one) => one.event === "custom").map((one) => one.data.tick);
told.cutsLeft = cuts.left;

// Waiting, interrupts and commands.
const asking = (await client.threads.create()).thread_id;
const waited = await client.runs.wait(asking, "agent", { input: say("ask") });
told.interrupt = waited.__interrupt__[0].value;
told.status = (await client.threads.get(asking)).status;
told.resumed = texts(await client.runs.wait(asking, "agent", { command: { resume: "yes" } })).at(-1);
try {
  await client.runs.wait(asking, "agent", { input: say("boom") });
} catch (error) {
  told.failed = error.message;
}

// Branching: a run from an earlier checkpoint, by either name.
const forked = (await client.threads.create()).thread_id;
await client.runs.wait(forked, "agent", { input: say("one") });
const { checkpoint } = await client.threads.getState(forked);
await client.runs.wait(forked, "agent", { input: say("two") });
told.fork = texts(await client.runs.wait(forked, "agent", { input: say("other"), checkpoint }));
const config = { configurable: { checkpoint_id: checkpoint.checkpoint_id } };
told.forkByConfig = texts(await client.runs.wait(forked, "agent", { input: say("third"), config }));
const history = await client.threads.getHistory(forked, { limit: 100 });
told.branches = history.filter((one) => one.parent_checkpoint?.checkpoint_id === checkpoint.checkpoint_id).length;

// Listing, cancelling, deleting; batches and runs without a thread.
const waiting = await client.runs.create(forked, "agent", { input: say("wait for ever") });
await client.runs.cancel(forked, waiting.run_id, true);
told.cancelled = (await client.runs.get(forked, waiting.run_id)).status;
await client.runs.delete(forked, waiting.run_id);
told.listed = (await client.runs.list(forked)).map((one) => one.status);
told.batch = (await client.runs.createBatch([{ assistantId: "agent", input: say("hi") }])).length;
told.stateless = texts(await client.runs.wait(null, "agent", { input: say("hi") }));
const following = client.threads.joinStream(forked, { lastEventId: "-" });
told.thread = (await following[Symbol.asyncIterator]().next()).value.event;
console.log(JSON.stringify(told));
process.exit(0);
