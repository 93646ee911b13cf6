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

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    tidemark: {
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
          const ends = new URLSearchParams({
            from: new Date(at - half).toISOString(),
            to: new Date(at + half).toISOString(),
          });
          window.dash_clientside.set_props("url", {
            pathname: "/group/" + encodeURIComponent(point.customdata),
            search: "?" + ends.toString(),
          });
        }
        return null;
      },
    },
  });
})();
