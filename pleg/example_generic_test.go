package pleg_test

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// services is a runtime that can only be listed: each pod is one service of the machine.
type services struct {
	mu     sync.Mutex
	states map[string]runtime.ContainerState
}

func (s *services) set(name string, state runtime.ContainerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[name] = state
}

func (s *services) ListPods(context.Context) ([]*runtime.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*runtime.Pod
	for name, state := range s.states {
		pods = append(pods, &runtime.Pod{
			PodRef: runtime.PodRef{UID: types.UID(name), Namespace: "system", Name: name},
			Containers: []runtime.Container{{ID: runtime.ContainerID{Type: "service", ID: name},
				Name: "main", State: state}},
		})
	}
	return pods, nil
}

// A runtime that can only be listed.
func ExampleGeneric() {
	rt := &services{states: map[string]runtime.ContainerState{"sshd": runtime.ContainerRunning}}
	cache := runtime.NewCache(runtime.ListInspector(rt), runtime.CacheOptions{})
	events := pleg.NewGeneric(rt, cache, pleg.Options{})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = events.Run(ctx) }()

	for change := range events.Watch() { // until Run ends
		status, _ := cache.Get(change.Pod.UID)
		for _, event := range change.Events {
			fmt.Println(change.Pod.Name, event.Type, status.ContainersRunning())
			switch event.Type {
			case pleg.ContainerStarted:
				rt.set("sshd", runtime.ContainerExited)
				events.Relist() // do not wait for the next one
			case pleg.ContainerDied:
				stop()
			}
		}
	}
	// Output:
	// sshd ContainerStarted true
	// sshd ContainerDied false
}
