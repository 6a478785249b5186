// What `useStream` of @langchain/react shows, rendered by React without a browser: a JSON object.
import { createElement } from "react";
import { act, create } from "react-test-renderer";
import { useMessageMetadata, useStream } from "@langchain/react";

globalThis.IS_REACT_ACT_ENVIRONMENT = true;
const apiUrl = process.argv.at(-1);
const say = (text) => ({ messages: [{ type: "human", content: text }] });
const cuts = { left: 0 };
/** Streams of events end in the middle, as often as `cuts.left` says; commands and states are not touched. */
const cutting = async (url, init) => {
  const answer = await fetch(url, init);
  if (!cuts.left || !String(url).endsWith("/stream/events")) return answer;
  cuts.left -= 1;
  const cut = new TransformStream({
    transform(chunk, controller) {
      controller.enqueue(chunk);
      controller.error(new TypeError("terminated"));
    },
  });
  return new Response(answer.body.pipeThrough(cut), { status: answer.status, headers: answer.headers });
};

/** A page with one `useStream`; `page.now` is what the hook returned last. */
const open = async (options) => {
  const page = {};
  const Page = () => {
    page.now = useStream({ apiUrl, fetch: cutting, reconnectDelayMs: () => 50, ...options });
    page.metadata = useMessageMetadata(page.now, page.now.messages[2]?.id);
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
const told = {};

// A page that begins a thread.
let threadId;
const onThreadId = (made) => (threadId = made);
const page = await open({ assistantId: "agent", onThreadId });
await page.submit(say("one"));
told.first = page.texts();
await page.submit(say("two"));
told.second = page.texts();

// An edit of the second question: another branch, from the checkpoint before it.
await page.until(() => page.metadata?.parentCheckpointId != null, "where the question stands is not told");
await page.submit(say("other"), { forkFrom: page.metadata.parentCheckpointId });
await page.until((now) => now.messages.at(-1)?.text === "echo: other", "the branch is not shown");
told.branch = page.texts();
const history = await page.now.client.threads.getHistory(threadId, { limit: 100 });
told.ends = history.filter((one) => !one.next.length).map((one) => one.values.messages.at(-1).content);

// A question of the graph, and its answer.
await page.submit(say("ask"));
await page.until((now) => now.interrupt != null, "nothing is asked");
told.asked = page.now.interrupt.value;
await act(() => page.now.respond("yes"));
await page.until((now) => !now.isLoading && now.messages.length === 6, "the answer does not come");
told.answered = page.texts().at(-1);

// Connections that are lost while a run goes on.
cuts.left = 3;
await page.submit(say("tick 200"));
await page.until((now) => now.messages.length === 8, "the end of the run is lost");
told.afterLoss = page.texts().at(-1);
told.cutsLeft = cuts.left;
await page.close();

// The page again, as after a reload.
const again = await open({ assistantId: "agent", threadId });
await again.until((now) => now.messages.length === 8, "the thread is not shown again");
told.reloaded = again.texts().length;

// A page that is opened while another one's run goes on.
const run = await again.now.client.runs.create(threadId, "agent", {
  input: say("tick 300"),
  streamMode: ["values", "updates", "messages-tuple", "custom", "checkpoints", "tasks"],
});
const other = await open({ assistantId: "agent", threadId });
await other.until((now) => now.messages.length === 10 && !now.isLoading, "another one's run is not shown");
told.joined = other.texts().at(-1);
await again.now.client.runs.join(threadId, run.run_id);
await again.close();
await other.close();

// Tokens of a model, as they come; a failure.
const talking = await open({ assistantId: "talk" });
await talking.submit(say("hi"));
told.tokens = talking.texts();
await talking.close();
const failing = await open({ assistantId: "agent" });
await act(() => failing.now.submit(say("boom")).catch(() => {}));
await failing.until((now) => now.error != null, "the failure is not told");
told.failed = String(failing.now.error.message ?? failing.now.error);
await failing.close();
console.log(JSON.stringify(told));
process.exit(0);
