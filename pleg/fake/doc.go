// Package fake is a pod lifecycle event generator whose events come from a test.
//
//	events := fake.New(fake.Options{})
//	go events.Run(ctx)
//	events.Push(web, pleg.Event{Type: pleg.ContainerDied, ContainerID: id, Name: "main"})
//	err := events.UntilTaken(ctx) // the reader has them
//
// It keeps the guarantees of [pleg.Generator]: between Push and reader stands a set
// by pod in which events are merged, the channel is the same always and is closed
// when Run ends, a second Run is refused, and with [Options].Cache the reader finds
// a status there that is newer than the events.
package fake
