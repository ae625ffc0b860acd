import { defineConfig } from "vite";

export default defineConfig({
  base: "/ui/",
  build: {
    outDir: "../static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    // The policy of the page lets scripts come from files only.
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8700", "/apis": "http://127.0.0.1:8700" } },
});
