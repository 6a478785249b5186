// What `useStream` of @langchain/react shows, rendered by React without a browser: a JSON object.
import { createElement } from "react";
import { act, create } from "react-test-renderer";
import { useStream } from "@langchain/react";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
const apiUrl = process.argv.at(-1);
const say = (text) => ({ messages: [{ type: "human", content: text }] });
const openStreams = new Set();
/** Streams of events can be lost in the middle; commands and states are not touched. */
const losing = async (url, init) => {
  const answer = await fetch(url, init);
  if (!String(url).endsWith("/stream/events")) return answer;
  let controller;
  const start = (given) => openStreams.add((controller = given));
  const stream = answer.body.pipeThrough(new TransformStream({ start, flush: () => openStreams.delete(controller) }));
  return new Response(stream, { status: answer.status, headers: answer.headers });
};
const lose = () => {
  const lost = [...openStreams];
  openStreams.clear();
  for (const controller of lost) controller.error(new TypeError("terminated"));
  return lost.length;
};

/** A page with one `useStream`; `page.now` is what the hook returned last. */
const open = async (options) => {
  const page = {};
  const Page = () => {
    page.now = useStream({ apiUrl, fetch: losing, reconnectDelayMs: () => 50, ...options });
    return null;
  };
  await act(async () => {
    page.root = create(createElement(Page));
  });
  page.until = async (holds, what) => {
    for (let waited = 0; !holds(page.now); waited += 20) {
      if (waited > 15_000) throw new Error(`${what}: ${JSON.stringify(page.now.values)} ${page.now.error}`);
      await act(() => new Promise((resolve) => setTimeout(resolve, 20)));
    }
  };
  page.submit = async (input, submitOptions) => {
    await act(async () => {
      await page.now.submit(input, submitOptions);
    });
    await page.until((now) => !now.isLoading, "the run does not end");
  };
  page.texts = () => page.now.messages.map((one) => one.text);
  page.close = () => act(async () => page.root.unmount());
  return page;
};
/** The checkpoint before a message, as in docs/tutorial/agent-in-a-browser.md. */
const before = async (stream, messageId) => {
  const history = await stream.client.threads.getHistory(stream.threadId, { limit: 1000 });
  const states = new Map(history.map((one) => [one.checkpoint.checkpoint_id, one]));
  let state = history[0];
  while (state?.values.messages?.some((one) => one.id === messageId)) {
    state = states.get(state.parent_checkpoint?.checkpoint_id);
  }
  return state?.checkpoint.checkpoint_id;
};
const told = {};

// A page that begins a thread.
let threadId;
const onThreadId = (made) => (threadId = made);
const page = await open({ assistantId: "agent", onThreadId });
await page.submit(say("one"));
await page.until((now) => now.messages.length === 2, "the first answer is not shown");
told.first = page.texts();
await page.submit(say("two"));
await page.until((now) => now.messages.length === 4, "the second answer is not shown");
told.second = page.texts();

// An edit of the second question: another branch, from the checkpoint before it.
await page.submit(say("other"), { forkFrom: await before(page.now, page.now.messages[2].id) });
await page.until((now) => now.messages.at(-1)?.text === "echo: other", "the branch is not shown");
told.branch = page.texts();
const history = await page.now.client.threads.getHistory(threadId, { limit: 100 });
told.ends = history.filter((one) => !one.next.length).map((one) => one.values.messages.at(-1).content);

// An edit of the first of two questions: a branch that is shorter than what was shown.
const editing = await open({ assistantId: "agent" });
await editing.submit(say("first"));
await editing.submit(say("second"));
await editing.until((now) => now.messages.length === 4, "both answers are not shown");
await editing.submit(say("first edited"), { forkFrom: await before(editing.now, editing.now.messages[0].id) });
await editing.until((now) => now.messages.some((one) => one.text === "echo: first edited"), "the edit is not shown");
told.edited = editing.texts();
await editing.close();

// A question of the graph, and its answer.
await page.submit(say("ask"));
await page.until((now) => now.interrupt != null, "nothing is asked");
told.asked = page.now.interrupt.value;
await act(() => page.now.respond("yes"));
await page.until((now) => !now.isLoading && now.messages.length === 6, "the answer does not come");
told.answered = page.texts().at(-1);

// Connections that are lost while a run goes on.
told.lost = 0;
const running = page.submit(say("tick 300"));
for (let times = 0; times < 3; times += 1) {
  do await new Promise((resolve) => setTimeout(resolve, 100));
  while (!openStreams.size);
  told.lost += lose() > 0 ? 1 : 0;
}
await running;
await page.until((now) => now.messages.length === 8, "the end of the run is lost");
told.afterLoss = page.texts().at(-1);
await page.close();

// The page again, as after a reload.
const again = await open({ assistantId: "agent", threadId });
await again.until((now) => now.messages.length === 8, "the thread is not shown again");
told.reloaded = again.texts().length;

// A page that is opened while another one's run goes on.
const run = await again.now.client.runs.create(threadId, "agent", {
  input: say("tick 1000"),
  streamMode: ["values", "updates", "messages-tuple", "custom", "checkpoints", "tasks"],
});
// A page follows a thread whose state has nodes to run, which it has from the first checkpoint on.
while (!(await again.now.client.threads.getState(threadId)).next.length) await new Promise((done) => setTimeout(done, 5));
const other = await open({ assistantId: "agent", threadId });
await other.until((now) => now.messages.length === 10 && !now.isLoading, "another one's run is not shown");
told.joined = other.texts().at(-1);
await again.now.client.runs.join(threadId, run.run_id);
await again.close();
await other.close();

// Tokens of a model, as they come; a failure.
const talking = await open({ assistantId: "talk" });
await talking.submit(say("hi"));
await talking.until((now) => now.messages.length === 2, "what the model says is not shown");
told.tokens = talking.texts();
await talking.close();
const failing = await open({ assistantId: "agent" });
await act(() => failing.now.submit(say("boom")).catch(() => {}));
await failing.until((now) => now.error != null, "the failure is not told");
told.failed = String(failing.now.error.message ?? failing.now.error);
await failing.close();
console.log(JSON.stringify(told));
process.exit(0);
