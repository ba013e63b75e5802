package main

import (
	"fmt"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	podhttp "github.com/kubeletkit/kubeletkit/podconfig/http"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// podSources returns the sources of pods, and the source of the secrets and config maps
// that they refer to, nil if there is none.
func podSources(s *config.Settings, problem func(path string, err error), log logr.Logger) ([]podconfig.Source, objects.Source, error) {
	var sources []podconfig.Source
	manifests, objects := files(s, problem, log)
	if manifests != nil {
		sources = append(sources, manifests)
	}
	if s.StaticPodURL != "" {
		source, err := podhttp.New(s.StaticPodURL, podhttp.Options{
			Header: s.StaticPodURLHeader, CheckFrequency: s.HTTPCheckFrequency.Duration,
			Allow: manifest.AllowedRefs{Env: objects != nil, PullSecrets: objects != nil, Volumes: objects != nil}, Logger: log.WithName("http"), Problem: problem,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("--manifest-url or staticPodURL: %w", err)
		}
		sources = append(sources, source)
	}
	return sources, objects, nil
}

// files returns what is read from disk: the pods, and the secrets and config maps. Each
// is nil if there is no path to read from. Without a directory of their own, secrets and
// config maps are read among the manifests: a user that can write there can run any
// program on this machine, and so read any secret anyway.
func files(s *config.Settings, problem func(path string, err error), log logr.Logger) (podconfig.Source, objects.Source) {
	opts := file.Options{
		CheckFrequency: s.FileCheckFrequency.Duration, Logger: log.WithName("file"), Problem: problem,
		Allow: manifest.AllowedRefs{Env: true, PullSecrets: true, Volumes: true}, Objects: s.ObjectsPath == "" || s.ObjectsPath == s.StaticPodPath,
		Await: !s.RunOnce, // it could wait without end
	}
	var pods *file.Source
	if s.StaticPodPath != "" {
		pods = file.New(s.StaticPodPath, opts)
	}
	switch {
	case pods == nil && s.ObjectsPath == "":
		return nil, nil
	case pods == nil:
		return nil, file.NewObjects(s.ObjectsPath, opts)
	case opts.Objects:
		return pods, pods.Objects()
	default:
		return pods, file.NewObjects(s.ObjectsPath, opts)
	}
}

// checkpointStore returns the store that keeps the pods, nil if none is to.
func checkpointStore(s *config.Settings, log logr.Logger) (*checkpoint.Dir, error) {
	if s.CheckpointDir == "" {
		return nil, nil
	}
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	return checkpoint.New(s.CheckpointDir, checkpoint.Options{Key: key, Logger: log.WithName("checkpoint")})
}
