// Package client has the commands of minikubelet that talk to a running agent over the
// socket in its root directory: pods, describe, history, logs, exec and stop.
package client
