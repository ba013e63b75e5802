// Package early calls process.Init before most packages of a program are initialised. Import it
// in the package main of a program that uses runtime/process and has many dependencies:
//
//	import _ "github.com/kubeletkit/kubeletkit/runtime/process/early"
//
// The program is executed again for each container, as its supervisor. Before main, Go initialises
// all packages, although a supervisor needs few of them: with client-go this takes more CPU time
// than the rest of a supervisor's start. Go initialises packages in the order of their import
// paths, each after those that it imports. This package imports little, so it is initialised before
// most others, but after packages whose import paths sort before this one, such as those of a module
// at example.com. A program for which that matters sets process.Options.Supervisor instead.
//
// This is an import with an effect, so nothing but package main should have it; package kubelet has it, which is a
// whole program. The program need not call process.Init then; a second call has no effect. On systems other than Linux
// the package does nothing.
package early
