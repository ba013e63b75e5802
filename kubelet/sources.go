package kubelet

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	podhttp "github.com/kubeletkit/kubeletkit/podconfig/http"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// podSources returns the sources of pods, and the source of the secrets and config maps
// that they refer to, nil if there is none.
func podSources(s *config.Settings, problem func(path string, err error),
	log logr.Logger) ([]podconfig.Source, objects.Source, error) {
	var sources []podconfig.Source
	manifests, objects := files(s, problem, log)
	if manifests != nil {
		sources = append(sources, manifests)
	}
	if s.StaticPodURL != "" {
		source, err := podhttp.New(s.StaticPodURL, podhttp.Options{
			Header: s.StaticPodURLHeader, CheckFrequency: s.HTTPCheckFrequency.Duration,
			Allow:  manifest.AllowedRefs{Env: objects != nil, PullSecrets: objects != nil, Volumes: objects != nil},
			Logger: log.WithName("http"), Problem: problem, KubeletVersion: s.StaticPodUIDs,
			AsKubelet: inPlaceOfKubelet(s),
		})
		if err != nil {
			return nil, nil, fmt.Errorf("--manifest-url or staticPodURL: %w", err)
		}
		sources = append(sources, source)
	}
	return sources, objects, nil
}

// staticPodUIDs returns the version of the kubelet whose UIDs static pods get: that of the settings, or else that of
// the kubelet which is installed, since it is the one that may take the node over; "" for none. The node object is not
// asked: the API server may be one of the pods, and the object has the version of this agent once it has run.
func staticPodUIDs(ctx context.Context, s *config.Settings, log logr.Logger) string {
	if s.StaticPodUIDs != "" || s.Embedded || s.StaticPodPath == "" && s.StaticPodURL == "" {
		return s.StaticPodUIDs
	}
	path, err := exec.LookPath("kubelet")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes v")
	if err != nil || !ok {
		log.V(1).Info("Version of the installed kubelet is not known", "path", path,
			"output", text.Clip(string(out), 100),
			"error", err)
		return ""
	}
	log.V(1).Info("Static pods get the UIDs of the installed kubelet", "path", path, "version", version)
	return version
}

// inPlaceOfKubelet reports whether manifests are read as kubelet reads them. What the embedded runtime runs has never
// been a kubelet's.
func inPlaceOfKubelet(s *config.Settings) bool { return !s.Embedded }

// withoutPodLevelResources takes the resources out of the specs of pods, as kubelet ignores them while the feature gate
// is off.
func withoutPodLevelResources(opts *kubeletkit.Options) {
	sources := slices.Clone(opts.Sources)
	for i := range sources {
		sources[i] = podconfig.MapPods(sources[i], func(pod *v1.Pod) *v1.Pod {
			if pod.Spec.Resources == nil {
				return pod
			}
			pod = pod.DeepCopy()
			pod.Spec.Resources = nil
			return pod
		})
	}
	opts.Sources = sources
}

// noSources is what a user has forgotten.
const noSources = "Neither a directory of manifests (--pod-manifest-path, staticPodPath), nor a URL " +
	"(--manifest-url, staticPodURL), nor a cluster (--kubeconfig) is given"

// refuseToStopPods returns an error if pods run, or if that is not known: an agent without
// sources stops them.
func refuseToStopPods(ctx context.Context, s *config.Settings,
	list func(context.Context) ([]*runtime.Pod, error)) error {
	if s.AllowNoPods {
		return nil
	}
	where := s.ContainerRuntimeEndpoint
	switch {
	case s.Embedded:
		where = s.RootDir
	case !s.OnMachine():
		where = "the runtime of the program"
	}
	const intended = "give --allow-no-pods if that is intended"
	pods, err := list(ctx)
	switch {
	case ctx.Err() != nil: // it is stopped while it starts
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%s. All pods that run on %s would be stopped; %s. Which pods run there is not known: %w", noSources,
			where, intended, err)
	}
	var names []string
	for _, pod := range pods {
		if pod.Running() {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	runs := "pods run"
	if len(names) == 1 {
		runs = "pod runs"
	}
	return fmt.Errorf("%s. %d %s on %s and would be stopped: %s; %s", noSources, len(names), runs, where,
		client.Some(names), intended)
}

// files returns what is read from disk: the pods, and the secrets and config maps. Each
// is nil if there is no path to read from. Without a directory of their own, secrets and
// config maps are read among the manifests: a user that can write there can run any
// program on this machine, and so read any secret anyway.
func files(s *config.Settings, problem func(path string, err error),
	log logr.Logger) (podconfig.Source, objects.Source) {
	opts := file.Options{
		CheckFrequency: s.FileCheckFrequency.Duration, Logger: log.WithName("file"), Problem: problem,
		Allow: manifest.AllowedRefs{Env: true, PullSecrets: true, Volumes: true}, Objects: s.ObjectsPath == "" ||
			s.ObjectsPath == s.StaticPodPath,
		Await:          !s.RunOnce, // it could wait without end
		KubeletVersion: s.StaticPodUIDs,
		AsKubelet:      inPlaceOfKubelet(s),
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
