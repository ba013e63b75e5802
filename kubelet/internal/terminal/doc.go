// Package terminal shows the pods of an agent, and its log, on a terminal or in a file.
//
// On a terminal a [Display] keeps a table of the pods below the log; elsewhere it writes
// a line for each change of a pod.
package terminal
