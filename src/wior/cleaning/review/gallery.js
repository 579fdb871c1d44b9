// The cards in view, and no others. Rows have one height, so a place on the page is a multiple of it.

const GAP = 12;
const BEYOND = 500; // pixels above and below the window in which cards are ready
// browsers lay out nothing far below some ten million pixels; longer lists scroll faster instead
const TALLEST = 10_000_000;
const ROOMY = 820; // pixels from which a record has its labels, fields and buttons side by side

class Gallery {
  constructor(root, page) {
    this.root = root;
    this.page = page;
    this.toolbar = find("toolbar");
    this.shown = new Uint32Array(0);
    this.current = 0;
    this.cards = new Map(); // by index
    this.spare = [];
    this.width = 0;
    addEventListener("scroll", () => this.later(), { passive: true });
    addEventListener("resize", () => this.later());
    new ResizeObserver(() => this.measure()).observe(root);
  }

  // one drawing for each frame
  later() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = undefined;
      this.render();
    });
  }

  // the current row stays the current one where it is still there, unless the list is another one and begins anew
  show(shown, { slot = this.slot, restart = false } = {}) {
    this.shown = shown;
    const place = restart || slot === undefined ? -1 : shown.indexOf(slot);
    this.current = place >= 0 ? place : restart ? 0 : Math.max(0, Math.min(this.current, shown.length - 1));
    for (const card of this.cards.values()) card.index = -1;
    if (this.height) this.resize();
    else this.measure();
    const above = this.top + GAP - this.root.getBoundingClientRect().top;
    if (restart && above > 0) scrollBy({ top: -above, behavior: "instant" });
    this.render();
  }

  measure() {
    const width = this.root.clientWidth;
    if (!this.shown.length || (width === this.width && this.height)) return;
    this.width = width;
    const least = this.page.data.columns.length || !this.page.pictures ? ROOMY + 40 : width < 500 ? 144 : 168;
    this.columns = Math.max(1, Math.floor((width + GAP) / (least + GAP)));
    this.cardWidth = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    for (const card of [...this.cards.values(), ...this.spare]) card.root.remove();
    this.cards.clear();
    this.spare = [];
    this.root.classList.toggle("tight", this.cardWidth < ROOMY);
    this.root.classList.toggle("middle", this.cardWidth >= 460);
    const { stacked, lines } = roomForLabels(this.page.data.classes, this.widthOfLabels());
    this.root.classList.toggle("stacked", stacked);
    this.root.style.setProperty("--label-lines", lines);
    const probe = new Card(this.page);
    probe.show(0, 1, this.shown[0]);
    probe.root.style.width = `${this.cardWidth}px`;
    this.root.append(probe.root);
    this.height = Math.ceil(probe.root.getBoundingClientRect().height);
    probe.root.remove();
    this.resize();
    this.render();
  }

  resize() {
    const step = this.height + GAP;
    this.tall = Math.max(0, Math.ceil(this.shown.length / this.columns) * step - GAP);
    this.root.style.height = `${Math.min(this.tall, TALLEST)}px`;
  }

  linesOf({ typical, longest }) {
    const room = this.cardWidth - (this.cardWidth < ROOMY ? 30 : 520);
    const most = this.cardWidth < ROOMY ? 4 : 5;
    return Math.max(longest > CARD_TEXT ? 2 : 1, Math.min(most, Math.ceil((typical * 7) / room)));
  }

  widthOfLabels() {
    if (!this.page.data.columns.length && this.page.pictures) return this.cardWidth - 20;
    if (this.cardWidth >= ROOMY) return 230;
    return this.cardWidth >= 460 ? Math.min(300, this.cardWidth - 250) : this.cardWidth - 30;
  }

  // how far the list moves when the page is scrolled by one pixel
  get pace() {
    const room = Math.min(this.tall, TALLEST) - innerHeight;
    return this.tall > TALLEST && room > 0 ? (this.tall - innerHeight) / room : 1;
  }

  // how far the page is scrolled beyond the beginning of the list, and how many pixels of the list that hides
  position() {
    const above = -this.root.getBoundingClientRect().top;
    return { above, passed: Math.max(0, above) * this.pace };
  }

  render() {
    if (!this.height) return;
    const { above, passed } = this.position();
    const shift = Math.max(0, above) - passed;
    const step = this.height + GAP;
    const first = Math.max(0, Math.floor((passed - BEYOND) / step)) * this.columns;
    const end = Math.min(this.shown.length, Math.ceil((passed + innerHeight + BEYOND) / step) * this.columns);
    const wanted = [];
    for (let index = first; index < end; index++) wanted.push(index);
    // the current card stays, or the focus would be lost with it
    if (this.current < first && this.shown.length) wanted.unshift(this.current);
    if (this.current >= end && this.current < this.shown.length) wanted.push(this.current);
    const keep = new Set(wanted);
    for (const [index, card] of this.cards) {
      if (keep.has(index)) continue;
      this.cards.delete(index);
      this.spare.push(card);
      card.root.remove();
    }
    // cards stand in the document in the order of the list, which is that of the tabulator and of a screen reader
    let next = this.root.firstElementChild;
    for (const index of wanted) {
      const { root } = this.place(index, shift, step);
      if (root === next) next = next.nextElementSibling;
      else this.root.insertBefore(root, next);
    }
    this.mark();
  }

  place(index, shift, step) {
    let card = this.cards.get(index);
    if (!card) {
      card = this.spare.pop() ?? new Card(this.page);
      card.index = -1;
      card.root.style.width = `${this.cardWidth}px`;
      card.root.style.height = `${this.height}px`;
      this.cards.set(index, card);
    }
    const x = (index % this.columns) * (this.cardWidth + GAP);
    const y = Math.floor(index / this.columns) * step + shift;
    card.root.style.transform = `translate(${x}px, ${y}px)`;
    if (card.index !== index || card.slot !== this.shown[index] || card.stale)
      card.show(index, this.shown.length, this.shown[index]);
    return card;
  }

  mark() {
    for (const [index, card] of this.cards) {
      const is = index === this.current;
      card.root.tabIndex = is ? 0 : -1;
      if (is) card.root.setAttribute("aria-current", "true");
      else card.root.removeAttribute("aria-current");
    }
  }

  refresh() {
    for (const card of this.cards.values()) card.refresh();
  }

  get slot() {
    return this.shown[this.current];
  }

  get card() {
    return this.cards.get(this.current);
  }

  // how much of the window is hidden by the bars that stay in place
  get top() {
    const { position, top } = getComputedStyle(this.toolbar);
    return position === "sticky" ? parseFloat(top) + this.toolbar.offsetHeight : 0;
  }

  isInView(index = this.current) {
    const box = this.cards.get(index)?.root.getBoundingClientRect();
    return Boolean(box) && box.bottom > this.top + 8 && box.top < innerHeight - 8;
  }

  firstInView() {
    const indices = [...this.cards.keys()].filter(index => this.isInView(index)).sort((one, other) => one - other);
    const whole = indices.find(index => this.cards.get(index).root.getBoundingClientRect().top >= this.top);
    return whole ?? indices[0] ?? 0;
  }

  choose(index, { focus = false } = {}) {
    if (!this.shown.length) return;
    this.current = Math.max(0, Math.min(index, this.shown.length - 1));
    this.reveal();
    this.render();
    if (focus) this.card?.root.focus({ preventScroll: true });
  }

  // scrolls no further than needed for the whole of the current card
  reveal() {
    const { above, passed } = this.position();
    const place = Math.floor(this.current / this.columns) * (this.height + GAP);
    const least = this.top + GAP;
    const most = Math.max(least, innerHeight - GAP - this.height);
    const now = place - passed - Math.min(0, above);
    const hidden = place - Math.min(most, Math.max(least, now));
    if (now < least || now > most)
      scrollBy({ top: (hidden > 0 ? hidden / this.pace : hidden) - above, behavior: "instant" });
  }
}
