"use strict";
// The page of a fleet. What others have named comes from the block of data, and reaches the page as text only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const el = (name, className, text) => {
    const e = document.createElement(name);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const key = (s) => s.toLowerCase();
  const gib = (n) => !n ? "" : n < 2 ** 30 ? `${Math.floor(n / 2 ** 20)} MiB` : `${(n / 2 ** 30).toFixed(1)} GiB`;
  const owners = data.owners || [];
  const ownerAt = new Map(owners.map((name, i) => [name, i]));
  const ownerClass = (name) => {
    const i = ownerAt.get(name);
    return i === undefined ? "none" : `c${i % 8} p${(i + Math.floor(i / 8)) % 8}`;
  };
  const both = Boolean(data.after);

  // hosts pairs what is with what will be.
  const pair = (now, then, id) => {
    const at = new Map((then || []).map((x) => [key(x[id]), x]));
    const out = (now || []).map((x) => {
      const there = at.get(key(x[id]));
      at.delete(key(x[id]));
      return { now: x, then: there };
    });
    for (const x of at.values()) out.push({ now: undefined, then: x });
    return out;
  };
  const hosts = pair(data.now.hosts, both ? data.after.hosts : data.now.hosts, "name").map((h, i) => {
    const is = h.now || h.then;
    const gpus = pair(h.now && h.now.gpus, h.then && h.then.gpus, "id");
    for (const g of gpus) {
      g.is = g.now || g.then;
      g.changed = both && JSON.stringify(g.now) !== JSON.stringify(g.then);
    }
    return { ...h, is, gpus, i, drawn: false };
  });

  // everyone are all who have something of a part.
  const everyone = (part) => (part.holders || []).concat(...(part.inside ? part.inside.parts.map(everyone) : []));
  const who = (h) => `${h.name} (${[h.kind + (h.kind === "process" && h.id ? ` ${h.id}` : ""), h.state, h.owner, h.note].filter(Boolean).join(", ")})`;
  const blanks = { free: "free", lost: "nothing fits here", unknown: "not known", closed: "not assignable" };
  const ownerOf = (part) => (everyone(part).find((h) => h.owner) || {}).owner;
  const label = (part) => {
    const names = everyone(part).map((h) => h.name).join(", ");
    const kind = part.kind === "instance" || part.kind === "vgpu" ? part.name.split("@")[0] : "";
    return [kind, names].filter(Boolean).join(" ") || blanks[part.kind] || part.name || "";
  };
  const describe = (host, gpu, part, side) => {
    const lines = [];
    const what = part.kind === "free" && part.size > 1 && gpu.counts ? `${part.size} free partitions` : blanks[part.kind] || part.kind;
    lines.push([what + (part.name ? ` ${part.name}` : ""), gib(part.memory)].filter(Boolean).join(", "));
    const inside = (p) => (p.inside ? p.inside.parts : []).flatMap((q) => [...(q.holders || []).map((h) => `${q.name || q.kind}: ${who(h)}`), ...inside(q)]);
    lines.push(...(part.holders || []).map((h) => who(h) + (h.id && h.id !== h.name && h.kind !== "process" ? `, id ${h.id}` : "")), ...inside(part));
    lines.push(`${side}${gpu.model} ${gpu.number} of ${host.name}, id ${gpu.id}`);
    return lines.join(". ");
  };

  // Filters.
  const filter = { owner: "", vm: "", model: "", changed: false };
  const matchesHolder = (h) => (!filter.owner || (filter.owner === "-" ? !h.owner : h.owner === filter.owner.slice(1))) &&
    (!filter.vm || (h.kind !== "process" && (h.name.toLowerCase().includes(filter.vm) || (h.id || "").toLowerCase().includes(filter.vm))));
  const filtersHolders = () => Boolean(filter.owner || filter.vm);
  const matchesPart = (part) => !filtersHolders() || everyone(part).some(matchesHolder);
  const matchesGPU = (g) => {
    if (filter.model && g.is.model !== filter.model) return false;
    if (filter.changed && !g.changed) return false;
    return !filtersHolders() || [g.now, g.then].some((x) => x && (x.parts.some(matchesPart) || (x.beside || []).some(matchesHolder)));
  };
  const waits = (h) => filtersHolders() && !filter.model && !filter.changed && [h.now, h.then].some((x) => x && (x.waiting || []).some(matchesHolder));

  // Bars. A part is a button that says all of itself; one of them is in the order of the tabulator, and arrows lead to the others.
  let current = null;
  const parts = new WeakMap();
  const select = (button) => {
    if (current && current !== button) current.tabIndex = -1;
    current = button;
    button.tabIndex = 0;
  };
  const drawBar = (h, g, gpu, side) => {
    const bar = el("div", `bar ${side}`);
    bar.setAttribute("role", "group");
    const prefix = both ? `${side === "now" ? "Now" : "After"}: ` : "";
    bar.setAttribute("aria-label", `${prefix}${gpu.model} ${gpu.number}, ${gpu.layout}`);
    gpu.parts.forEach((part, i) => {
      const owner = ownerOf(part);
      const held = everyone(part).length > 0;
      const b = el("button", `part ${part.kind} ${held ? ownerClass(owner) : ""} ${matchesPart(part) ? "" : "dim"}`);
      b.type = "button";
      b.tabIndex = -1;
      b.style.left = `${part.start / gpu.units * 100}%`;
      b.style.width = `${part.size / gpu.units * 100}%`;
      b.append(el("span", "", label(part)));
      if (part.kind === "free" && gpu.counts && part.size > 1 && part.size < 65) { // an edge for each partition
        b.style.backgroundImage = "linear-gradient(to left, var(--line) 1px, transparent 1px)";
        b.style.backgroundSize = `${100 / part.size}% 100%`;
      }
      if (part.inside) {
        const inside = el("span", "inside");
        for (const q of part.inside.parts) {
          const s = el("span", `${q.kind} ${everyone(q).length ? ownerClass(ownerOf(q)) : ""}`);
          s.style.left = `${q.start / part.inside.units * 100}%`;
          s.style.width = `${q.size / part.inside.units * 100}%`;
          inside.append(s);
        }
        b.append(inside);
      }
      const text = describe(h.is, gpu, part, prefix);
      b.setAttribute("aria-label", `${label(part)}: ${text}`); // what is seen comes first, for who says it to a machine
      parts.set(b, { h, g, i, side, text });
      bar.append(b);
    });
    return bar;
  };
  const aboutText = (gpu) => [gpu.layout, [gpu.status, gpu.reason].filter(Boolean).join(": "), gpu.pool && `pool ${gpu.pool}`,
    gpu.config && `config ${gpu.config}`, gpu.owner && `of ${gpu.owner}`].filter(Boolean).join(" · ");
  const shown = () => Number(slider ? slider.value : 0) >= 50 ? "after" : "now";
  const drawGPU = (h, g) => {
    const row = el("div", `gpu${g.changed ? " both" : ""}`);
    row.append(el("h3", "", `${g.is.number} · ${g.is.model}`));
    if (!g.changed) {
      row.append(el("p", "about", aboutText(g.is)));
    } else {
      row.append(el("p", "about", `Now: ${g.now ? aboutText(g.now) : "not there"}`), el("p", "about", `After: ${g.then ? aboutText(g.then) : "not there"}`));
    }
    for (const note of g.is.notes || []) row.append(el("p", "note", note));
    const bars = el("div", "bars");
    if (g.now) bars.append(drawBar(h, g, g.now, "now"));
    if (g.changed && g.then) {
      bars.append(drawBar(h, g, g.then, "after"));
      bars.append(el("div", "edge"));
    }
    row.append(bars);
    for (const w of g.is.beside || []) row.append(el("p", "soft", `Beside: ${who(w)}`));
    if (g.is.counts) {
      const more = el("details");
      more.append(el("summary", "", `Other counts${g.is.encode || g.is.decode ? ", encode and decode" : ""}`));
      more.append(el("p", "", g.is.counts.map((c) => `${c.partitions}${c.memory ? `: ${gib(c.memory)} each` : ""}${c.now ? " (now)" : ""}`).join("; ")));
      if (g.is.encode) more.append(el("p", "", `Encode: ${g.is.encode}`));
      if (g.is.decode) more.append(el("p", "", `Decode: ${g.is.decode}`));
      row.append(more);
    }
    return row;
  };
  const side = () => {
    for (const bar of document.querySelectorAll(".both .bar")) bar.inert = !bar.classList.contains(shown());
  };

  // Hosts are there from the start, as headings; their GPUs are drawn when they come near the screen.
  const draw = (h) => {
    if (h.drawn) return;
    h.drawn = true;
    h.body.replaceChildren(...h.gpus.filter(matchesGPU).map((g) => drawGPU(h, g)));
    for (const [of, title] of both ? [[h.now, "Waiting now"], [h.then, "Waiting after"]] : [[h.now, "Waiting"]]) {
      if (of && of.waiting) h.body.append(el("p", "soft", `${title}: ${of.waiting.map(who).join("; ")}`));
    }
    if (h.is.others) {
      const more = el("details");
      more.append(el("summary", "", `${h.is.others.length} VMs without a GPU`), el("p", "", h.is.others.join(", ")));
      h.body.append(more);
    }
    h.body.style.minHeight = "";
    side();
    enter();
  };
  const clear = (h) => {
    if (!h.drawn || h.body.contains(document.activeElement)) return;
    h.body.style.minHeight = `${h.body.offsetHeight}px`;
    h.body.replaceChildren();
    h.drawn = false;
    enter();
  };
  // enter keeps one part in the order of the tabulator.
  const enter = () => {
    if (current && current.isConnected && !current.closest("[inert]")) return;
    const first = [...document.querySelectorAll("#fleet .part")].find((b) => !b.closest("[inert]"));
    if (first) select(first);
  };
  const fleet = $("fleet");
  for (const h of hosts) {
    const section = el("section", "host");
    const title = el("h2", "", `${h.is.name} `);
    title.id = `host-${h.i}`;
    title.append(el("span", "", [h.is.os, h.is.cluster && `node of ${h.is.cluster}`, h.is.state].filter(Boolean).join(", ")));
    section.setAttribute("aria-labelledby", title.id);
    section.append(title);
    for (const note of h.is.notes || []) section.append(el("p", "note", note));
    h.body = el("div");
    section.append(h.body);
    h.section = section;
    section.host = h;
    fleet.append(section);
  }
  const watcher = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (e.isIntersecting) draw(e.target.host);
      else clear(e.target.host);
    }
  }, { rootMargin: "800px" });

  const apply = () => {
    let n = 0;
    let of = 0;
    for (const h of hosts) {
      const matching = h.gpus.filter(matchesGPU).length;
      of += h.gpus.length;
      n += matching;
      h.section.hidden = matching === 0 && !waits(h) && (filtersHolders() || filter.model !== "" || filter.changed);
      const rows = matching * (both ? 106 : 84);
      if (h.drawn) {
        h.drawn = false;
        h.body.replaceChildren();
      }
      h.body.style.minHeight = `${rows}px`;
      watcher.unobserve(h.section);
      if (!h.section.hidden) watcher.observe(h.section);
    }
    $("count").textContent = n === of ? `${of} GPUs` : `${n} of ${of} GPUs match`;
  };

  // Controls.
  const option = (value, text) => {
    const o = el("option", "", text);
    o.value = value;
    return o;
  };
  for (const name of owners) $("owner").append(option(`=${name}`, name));
  const models = [...new Set(hosts.flatMap((h) => h.gpus.map((g) => g.is.model)))].sort();
  for (const name of models) $("model").append(option(name, name));
  $("owner").addEventListener("change", (e) => { filter.owner = e.target.value; apply(); });
  $("model").addEventListener("change", (e) => { filter.model = e.target.value; apply(); });
  let later = 0;
  $("vm").addEventListener("input", (e) => {
    filter.vm = e.target.value.trim().toLowerCase();
    clearTimeout(later);
    later = setTimeout(apply, 120);
  });
  document.querySelector("form").addEventListener("submit", (e) => e.preventDefault());
  const slider = both ? $("slider") : null;
  if (slider) {
    const slide = () => {
      const n = Number(slider.value);
      document.documentElement.style.setProperty("--after", `${n}%`);
      slider.setAttribute("aria-valuetext", n === 0 ? "now" : n === 100 ? "after the plan" : `after the plan up to ${n} %, from there on now`);
      $("shown").textContent = slider.getAttribute("aria-valuetext");
      side();
      enter();
    };
    slider.addEventListener("input", slide);
    $("changed").addEventListener("change", (e) => { filter.changed = e.target.checked; apply(); });
    slide();
  }

  // Details of the part under the pointer, else of the one with the focus.
  const detail = $("detail");
  const show = (b) => { detail.textContent = b && parts.has(b) ? parts.get(b).text : ""; };
  const partOf = (e) => e.target.closest ? e.target.closest(".part") : null;
  const focused = () => document.activeElement && document.activeElement.classList.contains("part") ? document.activeElement : null;
  fleet.addEventListener("pointerover", (e) => show(partOf(e) || focused()));
  fleet.addEventListener("pointerleave", () => show(focused()));
  fleet.addEventListener("focusin", (e) => { const b = partOf(e); if (b) { select(b); show(b); } });
  fleet.addEventListener("focusout", () => show(null));

  // Arrows: left and right on a bar, up and down to the GPU before and after, of the next host too.
  const go = (h, at, i) => {
    draw(h);
    const rows = [...h.body.querySelectorAll(".gpu")];
    const row = rows[at < 0 ? rows.length - 1 : at];
    const bar = row && [...row.querySelectorAll(".bar")].find((b) => !b.inert);
    if (bar) [...bar.children][Math.min(i, bar.children.length - 1)].focus();
  };
  fleet.addEventListener("keydown", (e) => {
    const b = partOf(e);
    if (!b || e.altKey || e.ctrlKey || e.metaKey) return;
    const { h, i } = parts.get(b);
    const all = [...b.parentElement.children];
    const rows = [...h.body.querySelectorAll(".gpu")];
    const at = rows.indexOf(b.closest(".gpu"));
    const visible = hosts.filter((x) => !x.section.hidden && x.gpus.some(matchesGPU));
    const there = visible.indexOf(h);
    const to = { ArrowRight: all[i + 1], ArrowLeft: all[i - 1], Home: all[0], End: all[all.length - 1] }[e.key];
    if (to) to.focus();
    else if (e.key === "ArrowDown" && at + 1 < rows.length) go(h, at + 1, i);
    else if (e.key === "ArrowDown" && visible[there + 1]) go(visible[there + 1], 0, i);
    else if (e.key === "ArrowUp" && at > 0) go(h, at - 1, i);
    else if (e.key === "ArrowUp" && visible[there - 1]) go(visible[there - 1], -1, i);
    else if (!e.key.startsWith("Arrow")) return;
    e.preventDefault();
  });

  // Legend, pools, turns.
  const legend = (className, text) => {
    const item = el("li");
    item.append(el("i", className), document.createTextNode(text));
    $("legend").append(item);
  };
  for (const name of owners) legend(ownerClass(name), name);
  for (const [className, text] of [["none", "held, no owner"], ["", "free"], ["lost", "nothing fits"], ["unknown", "not known"], ["closed", "not assignable"]]) legend(className, text);
  const pools = (both ? data.after : data.now).pools || [];
  if (pools.length) {
    const rows = pools.flatMap((p) => [[p.name, "", p.taken, p.gpus, `${p.taken} of ${p.gpus} GPUs taken${p.owner ? `, of ${p.owner}` : ""}`],
      ...(p.quotas || []).map((q) => [p.name, q.label, q.used, q.most, q.text])]);
    const table = el("table");
    const head = el("tr");
    for (const text of ["Pool", "Label", "Taken", ""]) head.append(el(text ? "th" : "td", "", text));
    table.append(head);
    for (const [pool, of, used, most, text] of rows) {
      const row = el("tr");
      const cell = el("td");
      const meter = el("meter");
      meter.max = most;
      meter.value = used;
      meter.setAttribute("aria-label", `${pool} ${of}: ${text}`);
      cell.append(meter);
      row.append(el("td", "", pool), el("td", "", of), el("td", "", text), cell);
      table.append(row);
    }
    $("pools").append(el("h2", "", both ? "Pools after the plan" : "Pools"), table);
  }
  const events = (data.turns || []).flatMap((t) => t.events.map((e) => ({ ...e, turn: t.turn })));
  if (events.length) {
    const table = el("table");
    const head = el("tr");
    for (const [text, className] of [["Turn", ""], ["Who", ""], ["Host", ""], ["What", ""], ["When", "track"]]) head.append(el("th", className, text));
    table.append(head);
    const first = events[0].turn;
    const span = events[events.length - 1].turn - first + 1;
    const add = (list) => {
      for (const e of list) {
        const row = el("tr");
        const track = el("td", "track");
        const mark = el("i");
        mark.style.left = `${(e.turn - first) / span * 100}%`;
        mark.style.width = `${100 / span}%`;
        track.append(mark);
        row.append(el("td", "", e.turn), el("td", "", e.who), el("td", "", e.host), el("td", "", e.what), track);
        table.append(row);
      }
    };
    add(events.slice(0, 100));
    $("turns").append(el("h2", "", "Who is off when"), table);
    if (events.length > 100) {
      const more = el("button", "more", `Show all ${events.length}`);
      more.type = "button";
      more.addEventListener("click", () => { add(events.slice(100)); more.remove(); });
      $("turns").append(more);
    }
  }
  addEventListener("beforeprint", () => {
    for (const h of hosts) if (!h.section.hidden) draw(h);
  });
  apply();
  document.documentElement.dataset.ready = "yes";
})();
