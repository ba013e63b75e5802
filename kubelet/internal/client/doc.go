// Package client has the commands of minikubelet that connect to a running agent through the
// socket in its root directory: pods, describe, history, logs, exec, attach, port-forward, cp,
// top, images, gc and stop.
package client
