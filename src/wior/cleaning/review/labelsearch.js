// A box to find a label by typing, among thousands too, or to make a new one.

const MOST_FOUND = 50;

// names that begin with the words come first
function matching(names, words) {
  const wanted = words.trim().toLowerCase();
  const found = [[], [], []];
  names.forEach((name, label) => {
    const at = name.toLowerCase().indexOf(wanted);
    if (at >= 0) found[at === 0 ? (name.length === wanted.length ? 0 : 1) : 2].push(label);
  });
  return found.flat();
}

class LabelSearch {
  // `names` returns all labels; `choose` is given the name that was chosen
  constructor(input, list, { names, choose }) {
    this.input = input;
    this.list = list;
    this.names = names;
    this.choose = choose;
    this.active = 0;
    input.addEventListener("input", () => this.show());
    input.addEventListener("focus", () => this.show());
    input.addEventListener("blur", () => this.hide());
    input.addEventListener("keydown", event => this.onKey(event));
    // before the box loses the focus and the list is gone
    list.addEventListener("pointerdown", event => event.preventDefault());
    list.addEventListener("click", event => {
      const option = event.target.closest("[role=option]");
      if (option) this.take(option.choice);
    });
  }

  show() {
    const names = this.names();
    const words = this.input.value;
    const found = matching(names, words);
    const options = found.slice(0, MOST_FOUND).map(label => this.option(names[label], names[label]));
    const name = words.trim();
    if (name && !names.includes(name)) {
      const option = this.option(name, `new label “${name}”`);
      option.classList.add("new");
      options.push(option);
    }
    options.forEach((option, i) => (option.id = `${this.list.id}-${i}`));
    const more = found.length - MOST_FOUND;
    const rest = more > 0 ? [make("li", "remark", `and ${whole(more)} more: type to find them`, { role: "none" })] : [];
    this.options = options;
    this.list.replaceChildren(...options, ...rest);
    this.list.hidden = !options.length;
    this.input.setAttribute("aria-expanded", String(options.length > 0));
    this.mark(0, Boolean(words));
  }

  option(value, text) {
    const option = makeText("li", "option", text);
    option.setAttribute("role", "option");
    option.choice = value;
    return option;
  }

  mark(index, chosen = true) {
    this.active = chosen ? Math.max(0, Math.min(index, this.options.length - 1)) : -1;
    this.options.forEach((option, i) => option.setAttribute("aria-selected", String(i === this.active)));
    const option = this.options[this.active];
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  }

  hide() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  onKey(event) {
    const { key } = event;
    if (event.isComposing) return;
    if (key === "ArrowDown" || key === "ArrowUp") this.mark(this.active + (key === "ArrowDown" ? 1 : -1));
    else if (key === "Enter" && this.options?.[this.active]) this.take(this.options[this.active].choice);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  take(name) {
    this.input.value = "";
    this.hide();
    this.choose(name);
  }
}
