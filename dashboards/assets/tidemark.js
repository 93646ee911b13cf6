/* Theme, cell clicks and the age of the data: what must not wait for the server. */
(function () {
  "use strict";

  const KEY = "tidemark-theme";

  function preferred() {
    const kept = window.localStorage.getItem(KEY);
    if (kept === "dark" || kept === "light") {
      return kept;
    }
    return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  function apply(theme) {
    document.documentElement.setAttribute("data-theme", theme);
    document.documentElement.setAttribute("data-ag-theme-mode", theme);
    return theme;
  }

  apply(preferred());

  /* A topic in a grid's cell is a link; a plain click stays inside the application. */
  window.dashAgGridComponentFunctions = Object.assign({}, window.dashAgGridComponentFunctions, {
    TopicLink: function (cell) {
      const path = cell.data.topic_path;
      const search = window.location.search;
      return window.React.createElement(
        "a",
        {
          href: path + search,
          onClick: function (event) {
            if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) {
              return;
            }
            event.preventDefault();
            window.dash_clientside.set_props("url", { pathname: path, search: search });
          },
        },
        cell.value
      );
    },
  });

  /* What the server said last, and when we heard it, by a clock that nobody sets. */
  const last = { beat: null, heardAt: 0, heardWall: 0 };

  function span(props, children) {
    return {
      type: "Span",
      namespace: "dash_html_components",
      props: Object.assign({ children: children }, props),
    };
  }

  function sign(text) {
    return span({ className: "pill-sign", "aria-hidden": "true" }, text);
  }

  function duration(ms) {
    if (ms < 1000) {
      return Math.max(0, Math.round(ms)) + " ms";
    }
    const seconds = ms / 1000;
    if (seconds < 10) {
      return seconds.toFixed(1) + " s";
    }
    if (seconds < 60) {
      return Math.round(seconds) + " s";
    }
    const minutes = Math.floor(Math.round(seconds) / 60);
    const rest = Math.round(seconds) % 60;
    if (minutes < 60) {
      return minutes + " min" + (rest ? " " + rest + " s" : "");
    }
    const hours = Math.floor(minutes / 60);
    if (hours < 48) {
      return hours + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
    }
    return Math.floor(hours / 24) + " d " + (hours % 24) + " h";
  }

  function clock(ms, day) {
    const text = new Date(ms).toISOString();
    return (day ? text.slice(0, 10) + " " : "") + text.slice(11, 19);
  }

  const TAGS = new Set(
    ("a b button code dd details div dl dt h1 h2 h3 input label li nav ol option p pre section " +
      "select small span summary table tbody td textarea th thead time tr ul").split(" ")
  );
  const RENAMED = {
    className: "class",
    tabIndex: "tabindex",
    dateTime: "datetime",
    htmlFor: "for",
    maxLength: "maxlength",
    spellCheck: "spellcheck",
    autoComplete: "autocomplete",
  };
  /* Nothing that runs: no attribute that begins with "on", no style, no source. */
  const KEPT = new RegExp(
    "^(class|href|id|title|role|scope|tabindex|datetime|for|maxlength|spellcheck|autocomplete|" +
      "type|value|rows|selected|disabled|label|(aria|data)-[a-z-]+)$"
  );

  /* Of this application, or of the web: nothing that a browser would run. */
  const LINK = /^([/?#]|https?:\/\/)/;

  /* A link stays inside the application, as those of the frame do. */
  function follow(event) {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) {
      return;
    }
    event.preventDefault();
    const url = new URL(event.currentTarget.href);
    const changed = {};
    ["pathname", "search", "hash"].forEach(function (part) {
      // What stays is not set: a page whose path is set anew is built anew, fields and all.
      if (url[part] !== window.location[part]) {
        changed[part] = url[part];
      }
    });
    window.dash_clientside.set_props("url", changed);
  }

  /* Nodes of a tree of plain data. Text is text: nothing in it is ever markup. */
  function nodes(tree) {
    if (tree === null || tree === undefined) {
      return [];
    }
    if (Array.isArray(tree)) {
      return tree.flatMap(nodes);
    }
    if (typeof tree !== "object") {
      return [document.createTextNode(String(tree))];
    }
    const node = document.createElement(TAGS.has(tree.tag) ? tree.tag : "span");
    Object.entries(tree.props).forEach(function (entry) {
      const name = RENAMED[entry[0]] || entry[0];
      if (KEPT.test(name) && entry[1] !== null && entry[1] !== false && (name !== "href" || LINK.test(entry[1]))) {
        node.setAttribute(name, entry[1]);
      }
    });
    if (node.tagName === "A" && node.hasAttribute("href")) {
      if (/^https?:/.test(node.getAttribute("href"))) {
        node.target = "_blank";
        node.rel = "noopener noreferrer";
      } else {
        node.addEventListener("click", follow);
      }
    }
    node.append.apply(node, nodes(tree.children));
    return [node];
  }

  const LEVEL_SIGNS = { healthy: "✓", warning: "▲", degraded: "✖", unknown: "?" };
  const SIGNS = { fresh: "●", late: "▲", stale: "■", unknown: "?", error: "✖" };

  function levelAt(heard, observed, now, lost) {
    if (heard.error) {
      return "error";
    }
    if (observed === null) {
      return "unknown";
    }
    if (now - observed >= heard.stale_after_ms) {
      return "stale";
    }
    return lost || now - observed >= heard.late_after_ms ? "late" : "fresh";
  }

  /* On a group's page the chip is as old as the newest row of its worst broker. */
  function freshness(heard, now, lost) {
    const newest = heard.worst_at || heard.observed_at;
    const observed = newest ? Date.parse(newest) : null;
    const level = levelAt(heard, observed, now, lost);
    const attributes = {
      id: "freshness-chip",
      "data-observed-at": newest || "",
      "data-freshness": level,
    };
    if (level === "error") {
      return span(Object.assign(attributes, { className: "pill pill-stale" }), [
        sign(SIGNS.error),
        "unreadable",
      ]);
    }
    let text = "no data yet";
    if (observed !== null) {
      const age = now - observed;
      text = "judged to " + clock(observed, age >= 86400000) + " UTC (" + duration(age) + " ago)";
      if (level === "stale") {
        text = "UNKNOWN now: " + text;
      }
    }
    const silent = (heard.silent || []).join("; ");
    return span(
      Object.assign(attributes, {
        className: "pill pill-" + (silent && level === "fresh" ? "late" : level),
        title:
          "The last complete cycle: everything on the page is of this moment; amber after " +
          duration(heard.late_after_ms) + ", unknown after " + duration(heard.stale_after_ms),
      }),
      [sign(SIGNS[level]), text + (silent ? "; " + silent : "")]
    );
  }

  function health(checks, now, lost, search) {
    const age = now - Date.parse(checks.ran_at);
    const old = age >= checks.old_after_ms;
    const level = old || lost ? "unknown" : checks.level;
    const why = lost ? "the dashboard's server does not answer" : "the last run is " + duration(age) + " old";
    return {
      type: "Link",
      namespace: "dash_core_components",
      props: {
        href: "/checks" + keptOf(search),
        id: "health-chip",
        className: "pill pill-quality-" + level,
        title: level === checks.level ? checks.sentence : why + "; it said: " + checks.sentence,
        children: [
          sign(LEVEL_SIGNS[level]),
          "checks " + level + (old && !lost ? ": " + why : ""),
        ],
      },
    };
  }

  /* How many alerts fire: nothing that is not known is a number. */
  function firing(alerts, lost, search) {
    const level = lost ? "unknown" : alerts.level;
    return {
      type: "Link",
      namespace: "dash_core_components",
      props: {
        href: "/alerts" + keptOf(search),
        id: "alerts-chip",
        className: "pill pill-quality-" + level,
        title: (lost ? "the dashboard's server does not answer; it said: " : "") + alerts.sentence,
        children: [
          sign(LEVEL_SIGNS[level]),
          lost ? "" : alerts.said,
          span({ className: "visually-hidden" }, level === "unknown" ? "alerts: unknown" : "firing"),
        ],
      },
    };
  }

  /* What stays of an address when a reader goes to another page. */
  function keptOf(search) {
    const asked = new URLSearchParams(search || "");
    const kept = new URLSearchParams();
    ["range", "from", "to", "live", "cluster"].forEach(function (name) {
      if (asked.has(name)) {
        kept.set(name, asked.get(name));
      }
    });
    const text = kept.toString();
    return text ? "?" + text : "";
  }

  /* The panel of a change: its buttons ask for the next step with what its fields hold. */
  document.addEventListener("click", function (event) {
    const button = event.target.closest && event.target.closest("[data-step]");
    if (!button || button.disabled) {
      return;
    }
    const panel = button.closest("[data-action]");
    const values = {};
    panel.querySelectorAll("[data-field]").forEach(function (one) {
      values[one.dataset.field] = one.value;
    });
    panel.querySelectorAll("[data-step]").forEach(function (one) {
      one.disabled = true;
    });
    window.dash_clientside.set_props("change-asked", {
      data: {
        step: button.dataset.step,
        action: panel.dataset.action,
        subject: Number(panel.dataset.subject),
        key: panel.dataset.key || "",
        version: panel.dataset.version || "",
        values: values,
        path: window.location.pathname,
        search: window.location.search,
        asked: Date.now(),
      },
    });
  });

  /* What is typed after a preview is not what was previewed. */
  document.addEventListener("input", function (event) {
    const panel = event.target.closest && event.target.closest("[data-action]");
    if (panel) {
      panel.querySelectorAll('[data-step="do"]').forEach(function (one) {
        one.disabled = true;
        one.title = "look at the preview of what you have typed first";
      });
    }
  });

  /* A choice that is a question to the list: a new address, from its first page. */
  document.addEventListener("change", function (event) {
    const name = event.target.dataset && event.target.dataset.asks;
    if (name) {
      const asked = new URLSearchParams(window.location.search);
      ["page", "before"].forEach((one) => asked.delete(one));
      if (event.target.value) {
        asked.set(name, event.target.value);
      } else {
        asked.delete(name);
      }
      const search = asked.toString();
      window.dash_clientside.set_props("url", { search: search ? "?" + search : "" });
    }
  });

  const LOG_CHARS_MAX = 1000000;
  let busy = false;

  /* One question to the server, of which there is one at a time; what it says when it says no. */
  function asked(path, body, done) {
    busy = true;
    return fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    })
      .then(function (answer) {
        return answer.json().then(function (answered) {
          return answer.ok ? done() : answered.said;
        });
      })
      .catch(function () {
        return "The dashboard's server does not answer.";
      })
      .finally(function () {
        busy = false;
      });
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    tidemark: {
      /* Each second, and with each answer: the age of everything, and whether anybody answers. */
      age: function (ticks, heard, search) {
        if (!heard) {
          return [[], [], [], []];
        }
        if (heard.beat !== last.beat) {
          last.beat = heard.beat;
          last.heardAt = performance.now();
          last.heardWall = Date.now();
        }
        const waited = performance.now() - last.heardAt;
        const now = Date.parse(heard.now) + waited;
        const lost = waited > heard.lost_after_ms;
        const observed = heard.observed_at ? Date.parse(heard.observed_at) : null;
        const level = levelAt(heard, observed, now, lost);
        const past = new URLSearchParams(search || "").has("from");
        const aged = !past && level === "stale";
        document.documentElement.setAttribute("data-aged", aged ? "stale" : "");
        const said = [];
        if (lost) {
          said.push(
            "Disconnected since " + clock(last.heardWall) +
            " UTC: the dashboard's server does not answer. This page shows what it last said."
          );
        }
        if (aged) {
          said.push(
            "Nothing newer than " + clock(observed, now - observed >= 86400000) +
            " UTC has been judged, for " + duration(now - observed) +
            ": the states below are of then, and unknown now."
          );
        }
        return [
          freshness(heard, now, lost),
          heard.checks && level !== "error" ? health(heard.checks, now, lost, search) : [],
          said.map(function (text) {
            return span({ className: lost ? "banner banner-lost" : "banner" }, text);
          }),
          heard.alerts ? firing(heard.alerts, lost, search) : [],
        ];
      },

      /* What is only read is drawn at once, into a place that is ours. */
      draw: function (tree, id) {
        const place = document.getElementById(id);
        if (place) {
          const opened = Array.from(place.querySelectorAll("details[open]"), (one) => one.id);
          place.replaceChildren.apply(place, nodes(tree));
          place.querySelectorAll("details").forEach(function (one) {
            one.open = opened.includes(one.id);
          });
          const first = place.querySelector("[data-focus]");
          if (first) {
            first.focus();
          }
        }
      },

      /* Lines of a run's log, each once; what is long ago is cut. */
      followLog: function (page, run) {
        const place = document.getElementById("run-log");
        if (!page || !place) {
          return window.dash_clientside.no_update;
        }
        if (place.dataset.run !== String(page.run)) {
          place.dataset.run = String(page.run);
          place.dataset.next = "1";
          place.textContent = "";
        }
        if (page.from_line === Number(place.dataset.next) && page.to_line >= page.from_line) {
          const stays = place.scrollHeight - place.scrollTop - place.clientHeight > 40;
          const text = place.textContent + page.text;
          place.textContent =
            text.length > LOG_CHARS_MAX
              ? "… earlier lines are cut here\n" + text.slice(-LOG_CHARS_MAX)
              : text;
          place.dataset.next = String(page.to_line + 1);
          if (!stays) {
            place.scrollTop = place.scrollHeight;
          }
        }
        return page.said;
      },

      /* Who keeps the alerts up to date: the page of alerts says it beside its name. */
      alertsProcess: function (heard) {
        if (!heard || !heard.alerts) {
          return [];
        }
        return span({ className: "card-note", id: "alerts-sentence" }, heard.alerts.process);
      },

      /* Groups by a part of their name: a new address, from its first page. */
      findGroups: function (value) {
        const asked = new URLSearchParams(window.location.search);
        const text = (value || "").trim();
        if ((asked.get("q") || "") !== text) {
          asked.delete("page");
          if (text) {
            asked.set("q", text);
          } else {
            asked.delete("q");
          }
          const search = asked.toString();
          window.dash_clientside.set_props("url", { search: search ? "?" + search : "" });
        }
        return window.dash_clientside.no_update;
      },

      /* A name and a password go to the server by themselves; no callback has them. */
      signIn: function (clicks, byName, byPassword, name, password) {
        const unchanged = window.dash_clientside.no_update;
        if (!(clicks || byName || byPassword) || busy) {
          return unchanged;
        }
        if (!name || !password) {
          return "A name and a password, please.";
        }
        return asked("/session", { name: name, password: password }, function () {
          const here = new URL(window.location.href);
          const to = here.searchParams.get("to") || "/jobs";
          const at = here.pathname === "/sign-in" ? new URL(to, here.origin) : here;
          window.location.assign(at.origin === here.origin ? at.href : "/jobs");
          return unchanged;
        });
      },

      /* What is typed here goes over the wire as it is, unless that is encrypted, or no wire. */
      signInSafety: function () {
        if (window.isSecureContext) {
          return [];
        }
        return span(
          { className: "field-wrong" },
          "This connection is not encrypted: whoever is on the network can read the password."
        );
      },

      signOut: function (clicks) {
        if (!clicks || busy) {
          return window.dash_clientside.no_update;
        }
        return asked("/session/end", {}, function () {
          window.location.reload();
          return "";
        });
      },

      /* First call: what the reader prefers. Later ones: the other theme, kept. */
      theme: function (clicks) {
        if (!clicks) {
          return apply(preferred());
        }
        const next = preferred() === "dark" ? "light" : "dark";
        window.localStorage.setItem(KEY, next);
        return apply(next);
      },

      /* A cell of the heatmap opens its group, two and a half minutes around that moment. */
      openCell: function (click) {
        const point = click && click.points && click.points[0];
        if (!point || typeof point.customdata !== "string") {
          return window.dash_clientside.no_update;
        }
        const at = Date.parse(String(point.x).replace(" ", "T").replace(/(\.\d{3})\d*$/, "$1") + "Z");
        if (Number.isFinite(at)) {
          const half = 150000;
          const [pathname, asked] = point.customdata.split("?");
          const search = new URLSearchParams(asked || "");
          search.set("from", new Date(at - half).toISOString());
          search.set("to", new Date(at + half).toISOString());
          window.dash_clientside.set_props("url", {
            pathname: pathname,
            search: "?" + search.toString(),
          });
        }
        return null;
      },
    },
  });
})();
