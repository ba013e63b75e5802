// Package fake has the parts that a loop and its handler work with, for tests of
// either: a [Handler] that remembers what it was handed, a [Config] whose changes come
// from the test, [Workers] that work on nothing, and [Statuses] that are kept only.
//
//	handler, config := fake.NewHandler(), fake.NewConfig()
//	loop, err := syncloop.New(syncloop.Deps{Handler: handler, Config: config, …}, syncloop.Options{})
//	err = config.Push(ctx, podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{web}})
//	call, err := handler.UntilCalled(ctx, fake.HandlePodAdditions, web.UID)
//
// The other parts are in other rooms: pleg/fake has the events of the runtime, prober/fake
// the results of probes, volume/fake what removes directories, runtime/fake the
// runtime; and podmanager.Manager, which holds the desired pods, needs no fake.
package fake
