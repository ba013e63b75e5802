package fake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Pods returns n pods "pod-0", "pod-1" and so on in namespace "default", with the given
// number of containers "c0", "c1" and so on. The result depends on the arguments alone.
func Pods(n, containers int) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("pod-%d", i), Namespace: "default",
			UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)),
		}}
		for c := range containers {
			pod.Spec.Containers = append(pod.Spec.Containers,
				v1.Container{Name: fmt.Sprintf("c%d", c), Image: "image:1"})
		}
		pods[i] = pod
	}
	return pods
}

// Seed adds running pods, as if an agent had started them: their sandboxes are ready,
// their containers and sidecars run, and their images are present. Init containers have
// run and were removed. An agent that is given the same pods adopts them. Seed makes no
// calls and ignores the StartDelay and StartErr of a [Behavior]; events are sent. It
// fails without any change if one of the pods already has a sandbox.
func (r *Runtime) Seed(pods ...*v1.Pod) error {
	logs := "" // logs are not written
	if r.dir != "" {
		logs = r.Host().PodLogsDir
	}
	made, err := r.s.seed(pods, logs)
	if err != nil {
		return err
	}
	behaviors := r.s.behaviorsOf(made)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for i, c := range made {
		r.s.addContainer(c)
		r.s.run(c, behaviors[i])
	}
	return nil
}

// seed adds the sandboxes of pods, and returns the containers to be added to them.
func (s *service) seed(pods []*v1.Pod, logs string) ([]*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	configs := make([]*criv1.PodSandboxConfig, len(pods))
	for i, pod := range pods {
		configs[i] = sandboxConfig(pod, logs)
		if s.names[sandboxName(configs[i].GetMetadata())] {
			return nil, fmt.Errorf("fake runtime: seeding pod %s: it has a sandbox already", runtime.RefOf(pod))
		}
	}
	var made []*container
	for i, pod := range pods {
		sb := s.addSandbox(configs[i], "")
		for kind, c := range podspec.Containers(&pod.Spec) {
			if kind == podspec.EphemeralContainer || kind == podspec.InitContainer && !podspec.IsSidecar(c) {
				continue
			}
			img := s.findImage(c.Image)
			if img == nil {
				img = s.addImage(Image{Name: c.Image})
			}
			config, err := containerConfig(pod, c, img)
			if err != nil {
				return nil, fmt.Errorf("fake runtime: seeding pod %s, container %s: %w", runtime.RefOf(pod), c.Name,
					err)
			}
			made = append(made, newContainer(sb, config, img.GetId()))
		}
	}
	return made, nil
}

// sandboxConfig is the configuration that runtime/cri makes of a pod, as far as
// clients can see it.
func sandboxConfig(pod *v1.Pod, logs string) *criv1.PodSandboxConfig {
	network := criv1.NamespaceMode_POD
	if podspec.HasHostNetwork(pod) {
		network = criv1.NamespaceMode_NODE
	}
	if logs != "" {
		logs = crimeta.LogDirectory(logs, runtime.RefOf(pod))
	}
	return &criv1.PodSandboxConfig{
		Metadata: &criv1.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		Hostname: pod.Name, LogDirectory: logs,
		Labels: crimeta.SandboxLabels(pod), Annotations: maps.Clone(pod.Annotations),
		Linux: &criv1.LinuxPodSandboxConfig{SecurityContext: &criv1.LinuxSandboxSecurityContext{
			NamespaceOptions: &criv1.NamespaceOption{Network: network, Pid: criv1.NamespaceMode_CONTAINER},
		}},
	}
}

// containerConfig is the configuration that runtime/cri makes of a container, as far
// as clients can see it.
func containerConfig(pod *v1.Pod, c *v1.Container, img *criv1.Image) (*criv1.ContainerConfig, error) {
	annotations, err := crimeta.ContainerAnnotations(pod, c, 0, nil)
	if err != nil {
		return nil, err
	}
	config := &criv1.ContainerConfig{
		Metadata: &criv1.ContainerMetadata{Name: c.Name},
		Image:    &criv1.ImageSpec{Image: img.GetId(), UserSpecifiedImage: c.Image},
		Command:  c.Command, Args: c.Args, WorkingDir: c.WorkingDir,
		Labels: crimeta.ContainerLabels(pod, c), Annotations: annotations, LogPath: crimeta.LogPath(c.Name, 0),
	}
	for _, e := range c.Env {
		config.Envs = append(config.Envs, &criv1.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	return config, nil
}

// ExitNext makes all containers of the next n pods exit as if by themselves, and returns
// these pods. It takes pods with running containers in the order of their creation,
// starts after the last pod of the previous call, and wraps around. It returns fewer
// than n if there are no more.
func (r *Runtime) ExitNext(n int, code int32) []runtime.PodRef {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	var refs []runtime.PodRef
	for _, sb := range r.s.nextSandboxes(n) {
		refs = append(refs, sb.pod)
		for _, c := range sb.containers {
			r.s.end(c, code, "")
		}
	}
	return refs
}

// RestartNext is [Runtime.ExitNext] with a new instance for each container that has
// exited, as an agent would start it. Instances that had exited before are removed.
func (r *Runtime) RestartNext(n int, code int32) []runtime.PodRef {
	s := r.s
	s.mu.Lock()
	var refs []runtime.PodRef
	var made []*container
	for _, sb := range s.nextSandboxes(n) {
		refs = append(refs, sb.pod)
		for _, c := range sb.containers {
			if c.state == criv1.ContainerState_CONTAINER_RUNNING {
				made = append(made, newContainer(sb, successor(c.config), c.imageID))
			}
		}
	}
	s.mu.Unlock()
	behaviors := s.behaviorsOf(made)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range made {
		if s.sandboxes.byID[c.sandbox.id] == c.sandbox && c.sandbox.ready && !s.names[c.fullName()] {
			s.replace(c, code)
			s.run(c, behaviors[i])
		}
	}
	return refs
}

// replace adds a new instance, ends the one before it, and removes older ones. mu is
// held.
func (s *service) replace(c *container, code int32) {
	for _, old := range slices.Clone(c.sandbox.containers) {
		switch {
		case old.name() != c.name():
		case old.state == criv1.ContainerState_CONTAINER_RUNNING:
			s.end(old, code, "")
		default:
			s.drop(old)
		}
	}
	s.addContainer(c)
}

// successor returns the configuration of the next instance.
func successor(old *criv1.ContainerConfig) *criv1.ContainerConfig {
	attempt := old.GetMetadata().GetAttempt() + 1
	annotations := map[string]string{}
	maps.Copy(annotations, old.GetAnnotations())
	annotations[crimeta.AnnotationRestartCount] = strconv.FormatUint(uint64(attempt), 10)
	return &criv1.ContainerConfig{
		Metadata: &criv1.ContainerMetadata{Name: old.GetMetadata().GetName(), Attempt: attempt},
		Image:    old.GetImage(), Command: old.GetCommand(), Args: old.GetArgs(), WorkingDir: old.GetWorkingDir(),
		Envs: old.GetEnvs(), Mounts: old.GetMounts(), Labels: old.GetLabels(), Annotations: annotations,
		LogPath: crimeta.LogPath(old.GetMetadata().GetName(), int32(attempt)), Linux: old.GetLinux(),
	}
}

// behaviorsOf returns the behavior of each instance, see behaviorOf.
func (s *service) behaviorsOf(list []*container) []Behavior {
	out := make([]Behavior, len(list))
	for i, c := range list {
		out[i] = s.behaviorOf(c)
	}
	return out
}

// nextSandboxes returns the next n sandboxes with a running container, see
// [Runtime.ExitNext]. mu is held.
func (s *service) nextSandboxes(n int) []*sandbox {
	all := s.sandboxes.all
	first, _ := slices.BinarySearchFunc(all, s.touched+1,
		func(sb *sandbox, seq int) int { return cmp.Compare(sb.seq, seq) })
	var out []*sandbox
	for _, sb := range slices.Concat(all[first:], all[:first]) {
		if len(out) == n {
			break
		}
		if slices.ContainsFunc(sb.containers,
			func(c *container) bool { return c.state == criv1.ContainerState_CONTAINER_RUNNING }) {
			out = append(out, sb)
			s.touched = sb.seq
		}
	}
	return out
}
