// Keys of one letter act wherever the focus is, unless it is where somebody types or they are turned off.

function kindOf(target) {
  if (target.closest("input, select, textarea")) return target.type === "range" ? "slider" : "field";
  return target.closest("button, summary, a") ? "button" : "";
}

function run(event, act) {
  event.preventDefault();
  act();
}

function rememberKeys() {
  try {
    find("keys-on").checked = localStorage.getItem("wior-review-keys") !== "off";
    find("keys-on").addEventListener("change", () =>
      localStorage.setItem("wior-review-keys", find("keys-on").checked ? "on" : "off"),
    );
  } catch {
    // without storage the choice is for this visit
  }
}
