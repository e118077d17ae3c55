// The token from the printed address. It is posted once, and removed from the address bar.

import { plain } from "./format.js";
import { html, useState } from "./view.js";

async function posted(token) {
  const answer = await fetch("api/login", {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  return answer.ok;
}

/** Post the token after the #, if there is one. */
export async function opened() {
  const token = decodeURIComponent(location.hash.slice(1));
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  await posted(token).catch(() => false);
}

/** The form for people without a token. */
export function Locked({ onOpen }) {
  const [token, setToken] = useState("");
  const [says, setSays] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    const isOpen = await posted(token.trim().replace(/^.*#/, "")).catch(() => false);
    if (isOpen) onOpen();
    else setSays("That token is not the one of this run.");
  };
  return html`
    <main class="waiting">
      <span class="brand">malflow</span>
      <h1>This page needs a token</h1>
      <p>Open the address that the run printed, or enter the part after its <code>#</code>.</p>
      <form onSubmit=${submit}>
        <label class="field"><span>Token</span><input type="password" autocomplete="off" required value=${token} onInput=${(event) => setToken(event.target.value)} /></label>
        <button type="submit" class="main">Open</button>
      </form>
      <p class="bad" role="status">${plain(says)}</p>
    </main>
  `;
}
