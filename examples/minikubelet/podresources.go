package main

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/podresources"
)

// addPodResources adds kubelet's API of what containers hold, for monitors of devices. An agent whose root directory is
// too deep for a socket runs without.
func addPodResources(agent *kubeletkit.Agent, s *config.Settings, sources []podresources.Source, m *metrics,
	log logr.Logger) (*podresources.Server, error) {
	log = log.WithName("podresources")
	path := filepath.Join(s.RootDir, "pod-resources", "kubelet.sock")
	server, err := podresources.New(path, func() []*v1.Pod { return activePods(agent) }, sources, podresources.Options{
		Request: m.resources.PodResourcesRequested, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return server, agent.Add("pod resources", func(ctx context.Context) error {
		if err := server.Run(ctx); err != nil {
			log.Error(err, "The API of pod resources is not served", "socket", path)
		}
		return nil
	})
}

// activePods returns the pods that hold resources of the node: those that were admitted and have not ended.
func activePods(agent *kubeletkit.Agent) []*v1.Pod {
	parts := agent.Parts()
	return slices.DeleteFunc(slices.Concat(parts.PodManager.Pods(), agent.Terminating()), func(pod *v1.Pod) bool {
		st := parts.PodWorkers.State(pod.UID)
		return !st.Known() || st.Terminated()
	})
}
