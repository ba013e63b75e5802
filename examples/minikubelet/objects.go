package main

import (
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// files returns what is read from disk: the pods, and the secrets and config maps
// that they refer to, each nil if there is no path to read from. Objects that have
// no directory of their own are read among the manifests: whoever can write there
// can run anything on this machine, and so read any secret anyway.
func (s *settings) files(log logr.Logger, problem func(path string, err error)) (podconfig.Source, objects.Source) {
	opts := file.Options{
		CheckFrequency: s.FileCheckFrequency.Duration, Logger: log.WithName("file"), Problem: problem,
		Allow: manifest.AllowedRefs{Env: true, PullSecrets: true}, Objects: s.ObjectsPath == "" || s.ObjectsPath == s.StaticPodPath,
		Await: !s.RunOnce, // that would never be over
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
