// Package client has the commands of minikubelet that talk to a running agent over the
// socket in its root directory: pods, describe, history, logs, exec, attach,
// port-forward, cp and stop.
package client
