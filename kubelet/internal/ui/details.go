package ui

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// hidden stands for a value that is not shown.
const hidden = "(hidden)"

var (
	// secretName matches names of variables whose values are hidden.
	secretName = regexp.MustCompile(`(?i)pass|secret|token|credential|private|api_?key|access_?key|_key$|^key$`)
	// secretValue matches a URL with a password.
	secretValue = regexp.MustCompile(`://[^/@\s]*:[^/@\s]+@`)
)

// group is a part of the details of a container.
type group struct {
	Title string `json:"title"`
	Facts []fact `json:"facts"`
}

// eventView is an event of a pod.
type eventView struct {
	Tone      tone      `json:"tone"`
	Reason    string    `json:"reason"`
	Container string    `json:"container,omitempty"`
	Message   string    `json:"message"`
	Count     int       `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	// UID and Pod, as "namespace/name", are set in the list of a node.
	UID types.UID `json:"uid,omitempty"`
	Pod string    `json:"pod,omitempty"`
}

// eventsOf returns the events as the page shows them, the newest first.
func eventsOf(events []runtime.Event) []eventView {
	views := []eventView{}
	for _, e := range slices.Backward(events) {
		views = append(views, eventOf(&e))
	}
	return views
}

func eventOf(e *runtime.Event) eventView {
	v := eventView{Tone: normal, Reason: e.Reason, Message: e.Message, Count: e.Count, First: e.First, Last: e.Last}
	if e.Type == v1.EventTypeWarning {
		v.Tone = bad
	}
	if _, name, ok := strings.Cut(e.FieldPath, "{"); ok {
		v.Container = strings.TrimSuffix(name, "}")
	}
	return v
}

// groupsOf returns the details of a container. past is the history of its pod.
func groupsOf(c *v1.Container, past []history.Entry) []group {
	var groups []group
	add := func(title string, facts []fact) {
		if len(facts) > 0 {
			groups = append(groups, group{title, facts})
		}
	}
	add("Resources", resourcesOf(c.Resources))
	add("Probes", probesOf(c, past))
	var ports, mounts, env []fact
	for _, p := range c.Ports {
		value := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
		if p.HostPort > 0 {
			value += fmt.Sprintf(", port %d of the node", p.HostPort)
		}
		ports = append(ports, fact{Name: p.Name, Value: value})
	}
	for _, m := range c.VolumeMounts {
		value := "from volume " + m.Name
		if m.SubPath != "" {
			value += ", " + m.SubPath
		}
		if m.ReadOnly {
			value += ", read-only"
		}
		mounts = append(mounts, fact{Name: m.MountPath, Value: value})
	}
	for _, d := range c.VolumeDevices {
		mounts = append(mounts, fact{Name: d.DevicePath, Value: "the device of volume " + d.Name})
	}
	for i := range c.EnvFrom {
		env = append(env, fact{Name: c.EnvFrom[i].Prefix + "*", Value: sourceOf(&c.EnvFrom[i])})
	}
	for i := range c.Env {
		env = append(env, fact{Name: c.Env[i].Name, Value: valueOf(&c.Env[i])})
	}
	add("Ports", ports)
	add("Mounts", mounts)
	add("Environment", env)
	return groups
}

func resourcesOf(r v1.ResourceRequirements) []fact {
	names := map[v1.ResourceName]bool{}
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			names[name] = true
		}
	}
	var facts []fact
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var parts []string
		if q, ok := r.Requests[name]; ok {
			parts = append(parts, "requested "+q.String())
		}
		if q, ok := r.Limits[name]; ok {
			parts = append(parts, "limit "+q.String())
		}
		facts = append(facts, fact{Name: string(name), Value: strings.Join(parts, ", ")})
	}
	return facts
}

// probesOf returns the probes of a container with their last change.
func probesOf(c *v1.Container, past []history.Entry) []fact {
	var facts []fact
	for _, p := range []struct {
		kind  string
		probe *v1.Probe
	}{{"Startup", c.StartupProbe}, {"Liveness", c.LivenessProbe}, {"Readiness", c.ReadinessProbe}} {
		if p.probe == nil {
			continue
		}
		f := fact{Name: p.kind, Value: probeOf(p.probe)}
		for _, e := range past {
			if e.Kind != runtime.KindProbe || e.Container != c.Name || e.Reason != p.kind {
				continue
			}
			f.At, f.Tone, f.Answer = &e.Last, good, "succeeds"
			if e.Error != "" {
				f.Tone, f.Answer = bad, "fails: "+e.Error
			}
		}
		facts = append(facts, f)
	}
	return facts
}

// probeOf returns what a probe does.
func probeOf(p *v1.Probe) string {
	text := ""
	switch h := p.ProbeHandler; {
	case h.HTTPGet != nil:
		text = fmt.Sprintf("GET :%s%s", h.HTTPGet.Port.String(), h.HTTPGet.Path)
		if h.HTTPGet.Scheme == v1.URISchemeHTTPS {
			text += " by HTTPS"
		}
	case h.TCPSocket != nil:
		text = "connects to port " + h.TCPSocket.Port.String()
	case h.GRPC != nil:
		text = fmt.Sprintf("gRPC health check on port %d", h.GRPC.Port)
	case h.Exec != nil:
		text = "runs " + strings.Join(h.Exec.Command, " ")
	}
	return fmt.Sprintf("%s, every %d s", text, p.PeriodSeconds)
}

// valueOf returns the value of a variable, or where it is from. Values that may be secrets are hidden.
func valueOf(e *v1.EnvVar) string {
	switch from := e.ValueFrom; {
	case from == nil && (secretName.MatchString(e.Name) || secretValue.MatchString(e.Value)):
		return hidden
	case from == nil:
		return e.Value
	case from.SecretKeyRef != nil:
		return "from key " + from.SecretKeyRef.Key + " of Secret " + from.SecretKeyRef.Name
	case from.ConfigMapKeyRef != nil:
		return "from key " + from.ConfigMapKeyRef.Key + " of ConfigMap " + from.ConfigMapKeyRef.Name
	case from.FieldRef != nil:
		return "from field " + from.FieldRef.FieldPath
	case from.ResourceFieldRef != nil:
		return "from resource " + from.ResourceFieldRef.Resource
	default:
		return "from elsewhere"
	}
}

func sourceOf(e *v1.EnvFromSource) string {
	switch {
	case e.SecretRef != nil:
		return "all keys of Secret " + e.SecretRef.Name
	case e.ConfigMapRef != nil:
		return "all keys of ConfigMap " + e.ConfigMapRef.Name
	default:
		return "from elsewhere"
	}
}

// volumesOf returns the volumes of a pod with their types.
func volumesOf(pod *v1.Pod) []fact {
	var facts []fact
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		facts = append(facts, fact{Name: v.Name, Value: terminal.VolumeText(&v.VolumeSource)})
	}
	return facts
}

// yamlOf returns a pod without what may be secret and what only API servers need.
func yamlOf(pod *v1.Pod) ([]byte, error) {
	pod = pod.DeepCopy()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.ManagedFields = nil
	delete(pod.Annotations, v1.LastAppliedConfigAnnotation)
	for _, c := range podspec.Containers(&pod.Spec) {
		for i := range c.Env {
			if c.Env[i].ValueFrom == nil {
				c.Env[i].Value = valueOf(&c.Env[i])
			}
		}
	}
	return yaml.Marshal(pod)
}
