// Package xterm has the files of xterm.js 6.0.0 and its addon-fit 0.11.0 (MIT, xtermjs.org), which draw a terminal in a
// browser. They are those of the npm packages @xterm/xterm and @xterm/addon-fit, without the references to source maps.
package xterm

import "embed"

// Files are xterm.mjs, addon-fit.mjs and xterm.css.
//
//go:embed xterm.mjs addon-fit.mjs xterm.css
var Files embed.FS
