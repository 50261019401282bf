// A chat from JavaScript, without packages (Node.js 18 or later; a browser needs --cors-origin).
//
//   node examples/chat.mjs [URL]      URL: http://127.0.0.1:1919/v1; the key is in MINISGL_API_KEY

const url = process.argv[2] ?? "http://127.0.0.1:1919/v1";

async function ask(fields) {
  const reply = await fetch(`${url}/chat/completions`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Authorization: `Bearer ${process.env.MINISGL_API_KEY ?? "none"}`,
    },
    body: JSON.stringify({
      messages: [{ role: "user", content: "Name three colours." }],
      max_tokens: 40,
      ...fields,
    }),
  });
  if (!reply.ok) throw new Error((await reply.json()).error.message);
  return reply;
}

// The texts of a stream's events, as they come.
async function* textOf(reply) {
  let waiting = "";
  for await (const bytes of reply.body.pipeThrough(new TextDecoderStream())) {
    const events = (waiting + bytes).split("\n\n");
    waiting = events.pop(); // the rest of this event comes with the next bytes
    for (const event of events) {
      const data = event.slice("data: ".length);
      if (data !== "[DONE]") yield JSON.parse(data).choices[0]?.delta.content ?? "";
    }
  }
}

const answer = await (await ask({})).json();
console.log(answer.choices[0].message.content);
for await (const text of textOf(await ask({ stream: true }))) process.stdout.write(text);
console.log();
