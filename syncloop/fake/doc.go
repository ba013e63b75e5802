// Package fake has the parts that a loop and its handler work with, for tests of
// either: a [Handler] that remembers what it was handed, a [Config] whose changes come
// from the test, and [Statuses] that are kept only.
//
//	handler, config := fake.NewHandler(), fake.NewConfig()
//	loop, err := syncloop.New(syncloop.Deps{Handler: handler, Config: config, …}, syncloop.Options{})
//	err = config.Push(ctx, podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{web}})
//	call, err := handler.UntilCalled(ctx, fake.HandlePodAdditions, web.UID)
//
// The fakes of other parts are in their packages: podworkers/fake has the workers,
// pleg/fake the events of the runtime, prober/fake the results of probes, volume/fake the
// removal of directories, runtime/fake the runtime. podmanager.Manager, which holds the
// desired pods, needs no fake.
package fake
