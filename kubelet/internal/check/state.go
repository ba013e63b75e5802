package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/node/dra"
	"github.com/kubeletkit/kubeletkit/node/users"
)

// File is a file or directory of a kubelet.
type File struct {
	// Path is relative to the root directory, with slashes. That of device plugins begins with "device-plugins" and
	// that of certificates with "pki", wherever these directories are.
	Path string
	// Content is that of a regular file; nil for a directory.
	Content []byte
	// At is the path if it is not below the root directory.
	At string
}

// StatePaths are the patterns, of [path.Match], of the files in a root directory that [State] judges.
func StatePaths() []string {
	var all []string
	for _, r := range rules(false) {
		all = append(all, r.pattern)
	}
	return all
}

type rule struct {
	pattern string
	judge   func(File) Finding
}

func kept(why string) func(File) Finding {
	return func(File) Finding { return Finding{Verdict: Kept, Why: why} }
}
func lost(why string) func(File) Finding {
	return func(File) Finding { return Finding{Verdict: Lost, Why: why} }
}

// rules are what becomes of kubelet's files, but those of the managers of CPUs and memory, which judge themselves. The
// files stay on the disk in any case, for the way back.
func rules(drivers bool) []rule {
	return []rule{
		{"allocated_pods_state", lost("resizes that were deferred are decided again; containers run on with the " +
			"resources that they have")},
		{"actuated_pods_state", lost("the first resize of a container that a kubelet has started needs no restart, " +
			"whatever its resize policy says")},
		{"image_manager/pulled", kept("the credentials with which images were pulled")},
		{"image_manager/pulling", kept("an image whose pull was cut off counts as pulled by the agent")},
		{"dra_manager_state", claimState(drivers)},
		{"device-plugins/kubelet_internal_checkpoint", deviceState},
		{"checkpoints", kept("checkpoints of containers; new ones are written to the same directory")},
		{"config.json", kept("credentials for pulls")},
		{"seccomp", kept("localhost profiles")},
		{"pki/kubelet-client-current.pem",
			kept("the client certificate of the node, which is rotated as by a kubelet")},
		{"podcheckpoint", kept("pods of an earlier run of this agent")},
		{"pods/*/userns", func(f File) Finding {
			if _, err := users.ParseRecord(f.Content); err != nil && len(f.Content) > 0 {
				return Finding{
					Verdict: Lost, Why: "the user IDs of a pod with hostUsers: false cannot be read: " + err.Error() +
						"; a runtime that reports them, such as containerd 2, tells them",
				}
			}
			return kept("the user IDs of a pod with hostUsers: false")(f)
		}},
		{"pods/*/volumes/*", volumeDir(drivers)},
		{"pods/*/volumeDevices/*", volumeDir(drivers)},
	}
}

// State returns what becomes of the files. drivers means that the agent has drivers of resource claims and of CSI
// volumes.
func State(files []File, drivers bool) (out []Finding) {
	for _, file := range files {
		for _, r := range rules(drivers) {
			if ok, err := path.Match(r.pattern, file.Path); err != nil || !ok {
				continue
			}
			f := r.judge(file)
			if f.Verdict == "" {
				continue
			}
			f.Area, f.Setting = AreaState, cmp.Or(file.At, file.Path)
			out = append(out, f)
		}
	}
	return out
}

// deviceState judges the checkpoint of devices.
func deviceState(f File) Finding {
	switch pods, err := podsWithDevices(f.Content); {
	case err != nil:
		return unreadable(err)
	case pods == 0:
		return Finding{Verdict: Lost, Why: "no pod has devices"}
	default:
		return Finding{Verdict: Kept, Why: fmt.Sprintf("the devices of %d pods", pods)}
	}
}

// podsWithDevices returns the number of pods in a checkpoint of devices.
func podsWithDevices(content []byte) (int, error) {
	var state struct {
		Data struct {
			PodDeviceEntries []struct{ PodUID, ResourceName string }
		}
	}
	err := json.Unmarshal(content, &state)
	pods := map[string]bool{}
	for _, e := range state.Data.PodDeviceEntries {
		pods[e.PodUID] = true
	}
	return len(pods), err
}

// EarlierDevices judges the checkpoint of devices that an earlier version of the agent has left below its root
// directory. now is the one in its place, whose content is nil if it is missing. The agent takes the earlier one over
// if it is kept: if pods have devices in that one only.
func EarlierDevices(earlier, now File) Finding {
	f := deviceState(earlier)
	f.Area, f.Setting = AreaState, earlier.At
	if f.Verdict != Kept || bytes.Equal(earlier.Content, now.Content) {
		return f
	}
	if pods, err := podsWithDevices(now.Content); now.Content == nil || err == nil && pods == 0 {
		f.Why += ", which the agent moves to " + now.At
		return f
	}
	f.Verdict, f.Blocks = Lost, true
	f.Why += " are not known to the agent, and other pods may get the same: it uses " + now.At
	f.Do = "keep the file of the two whose pods run, as " + now.At
	return f
}

// claimState judges the checkpoint of resource claims, as its manager reads it.
func claimState(prepares bool) func(File) Finding {
	return func(f File) Finding {
		claims, err := dra.ParseState(f.Content)
		switch {
		case err != nil && prepares:
			return Finding{Verdict: Lost, Why: "it cannot be read: " + err.Error() +
				"; the claims of pods are prepared again"}
		case err != nil:
			return unreadable(err)
		case len(claims) == 0:
			return Finding{Verdict: Lost, Why: "no pod has resource claims"}
		case prepares:
			return Finding{Verdict: Kept, Why: fmt.Sprintf("%d resource claims, which stay prepared", len(claims))}
		default:
			return Finding{
				Verdict: Stopped, Blocks: true, Why: "pods have resource claims, which the agent prepares only in a " +
					"cluster, with a container runtime: they are refused when they are admitted again",
				Do: "move these pods to another node first",
			}
		}
	}
}

func unreadable(err error) Finding {
	return Finding{Verdict: Lost, Why: "it cannot be read: " + err.Error()}
}

// volumeDir judges the directory of the volumes, or of the devices, of one plugin in a pod.
func volumeDir(drivers bool) func(f File) Finding {
	return func(f File) Finding {
		plugin := strings.ReplaceAll(path.Base(f.Path), "~", "/")
		name, ours := strings.CutPrefix(plugin, "kubernetes.io/")
		switch {
		case ours && slices.Contains([]string{"configmap", "secret", "downward-api", "projected", "empty-dir",
			"host-path", "local-volume", "image", "nfs"}, name):
			return Finding{}
		case ours && name == "csi" && drivers:
			return kept("volumes of CSI drivers, which stay mounted: either takes down what the other has made")(f)
		case ours && name == "csi":
			return Finding{
				Verdict: Lost, Blocks: true, Why: "volumes of CSI drivers, which the agent has only in a cluster with a " +
					"container runtime: containers run on, but none of the pod can start",
				Do: "give --kubeconfig, or move the pod to another node first",
			}
		}
		return Finding{
			Verdict: Lost, Blocks: true, Why: "volumes of the plugin " + plugin +
				", which the agent does not have: containers run on, but none of the pod can start",
			Do: "move the pod to another node first",
		}
	}
}
