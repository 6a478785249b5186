// What the JavaScript client of LangGraph gets of a server: a JSON list.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.argv.at(-1) });
const told = [];
const tell = (value) => told.push(value);
const refused = async (call) => {
  try {
    await call();
    return null;
  } catch (error) {
    return error.status;
  }
};

tell((await client.assistants.search({ limit: 10 })).map((one) => one.assistant_id));
const made = await client.assistants.create({ graphId: "agent", name: "one" });
await client.assistants.update(made.assistant_id, { name: "two" });
tell((await client.assistants.getVersions(made.assistant_id)).map((one) => one.name));
tell((await client.assistants.setLatest(made.assistant_id, 1)).name);
tell((await client.assistants.search({ limit: 1, includePagination: true })).next);
tell((await client.assistants.getGraph("agent")).nodes.map((one) => one.id));
tell([(await client.assistants.getSchemas("agent")).graph_id, await client.assistants.getSubgraphs("agent")]);
await client.assistants.delete(made.assistant_id);

const { thread_id } = await client.threads.create({ graphId: "agent", metadata: { owner: "ann" }, ttl: 5 });
await client.threads.updateState(thread_id, {
  values: { messages: [{ role: "user", content: "hi" }] },
  asNode: "__start__",
});
await client.threads.updateState(thread_id, { values: { n: 1 }, asNode: "work" });
const [, first] = await client.threads.getHistory(thread_id);
await client.threads.updateState(thread_id, { values: { n: 2 }, asNode: "work", checkpoint: first.checkpoint });
const history = await client.threads.getHistory(thread_id);
const isChild = (one) => one.parent_checkpoint?.checkpoint_id === first.checkpoint.checkpoint_id;
tell(history.map((one) => [one.values.n ?? null, one.next, isChild(one)]));
tell((await client.threads.getState(thread_id, first.checkpoint)).next);
tell(
  (
    await client.threads.search({
      metadata: { owner: "ann" },
      select: ["status"],
      extract: { last: "values.messages[-1].content" },
    })
  )[0],
);
tell(await client.threads.count({ status: "idle" }));
const copy = await client.threads.copy(thread_id);
tell((await client.threads.getState(copy.thread_id)).values.n);
tell((await client.threads.update(thread_id, { metadata: { k: 1 } })).metadata.k);
await client.threads.delete(thread_id);
tell(await refused(() => client.threads.get(thread_id)));
await client.store.putItem(["a", "b"], "k", { text: "likes tea" });
tell((await client.store.getItem(["a", "b"], "k")).value);
const found = await client.store.searchItems(["a"], { query: "liking tea" });
tell(found.items.map((item) => [item.key, item.score > 0]));
tell((await client.store.listNamespaces({ prefix: ["a"] })).namespaces);
await client.store.deleteItem(["a", "b"], "k");
tell(await client.store.getItem(["a", "b"], "k"));
console.log(JSON.stringify(told));
