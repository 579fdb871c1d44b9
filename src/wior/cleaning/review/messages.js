// What the page says, and what it asks.

let speaking;

function say(text) {
  const message = find("message");
  message.textContent = text;
  message.classList.add("visible");
  clearTimeout(speaking);
  speaking = setTimeout(() => message.classList.remove("visible"), 6000);
}

function confirmed(title, text, yes) {
  const dialog = find("confirm");
  find("confirm-title").textContent = title;
  find("confirm-text").textContent = text;
  find("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise(resolve =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
  );
}

function showFacts(facts) {
  find("facts").append(...facts.flatMap(([name, text]) => [makeText("dt", "", name), makeText("dd", "", text)]));
}
