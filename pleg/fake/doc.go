// Package fake has a pod lifecycle event generator whose events come from a test.
//
//	events := fake.New(fake.Options{})
//	go events.Run(ctx)
//	events.Push(web, pleg.Event{Type: pleg.ContainerDied, ContainerID: id, Name: "main"})
//	err := events.UntilTaken(ctx) // the reader has received them
//
// It keeps the contract of [pleg.Generator]: events wait for the reader in a set by pod,
// the channel is always the same and is closed when Run ends, and a second Run is refused.
// With [Options].Cache the reader finds a status there that is newer than the events.
package fake
