// Package early calls process.Init before most packages of a program are initialised. Import it
// in the package main of a program that uses runtime/process and has many dependencies:
//
//	import _ "github.com/kubeletkit/kubeletkit/runtime/process/early"
//
// The program is executed again for each container, as its supervisor. Before main, Go initialises
// all packages, although a supervisor needs few of them: with client-go this takes more CPU time
// than the rest of a supervisor's start. Go initialises packages in the order of their import
// paths, each after those that it imports. This package imports little, so its turn comes before
// that of most others. docs/performance.md has the difference.
//
// This is an import with an effect, so nothing but package main should have it. The program need
// not call process.Init then; a second call has no effect. On systems other than Linux the package
// does nothing.
package early
