package client

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

var updateScreens = flag.Bool("update-screens", false, "write what commands print to testdata/screens")

// screen compares what commands print with testdata/screens/NAME.txt. Update them by
//
//	go test -run TestScreens ./kubelet/internal/client -update-screens
func screen(t *testing.T, name, root string, commands ...string) {
	t.Helper()
	screenOf(t, name, root, 0, commands...)
}

// screenOf is screen on a terminal of that width.
func screenOf(t *testing.T, name, root string, width int, commands ...string) {
	t.Helper()
	var all strings.Builder
	e := Env{Out: &all, Err: &all, now: func() time.Time { return podtest.Noon }, width: width}
	for _, command := range commands {
		if all.Len() > 0 {
			all.WriteString("\n")
		}
		all.WriteString(strings.TrimSpace("$ minikubelet "+command) + "\n")
		args := strings.Fields(command)
		if root != "" {
			args = append([]string{"--root-dir", root}, args...)
		}
		if err := Run(t.Context(), args, e); err != nil {
			all.WriteString("error: " + err.Error() + "\n")
		}
	}
	path := filepath.Join("testdata", "screens", name+".txt")
	if *updateScreens {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(all.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), all.String())
}

func TestScreensOfHelp(t *testing.T) {
	screen(t, "help", "", "")
	for _, cmd := range newRoot(Env{}).Commands() {
		if cmd.Hidden || cmd.Name() == runName { // its flags are those of the agent
			continue
		}
		commands := []string{"help " + cmd.Name()}
		if cmd.Name() == "get" {
			for _, below := range cmd.Commands() {
				commands = append(commands, "help get "+below.Name())
			}
		}
		screen(t, "help-"+cmd.Name(), "", commands...)
	}
	for _, width := range []int{60, 80, 120} {
		text := help(newRoot(Env{}), width)
		for _, cmd := range newRoot(Env{}).Commands() {
			text += help(cmd, width)
		}
		for line := range strings.Lines(text) {
			// Examples, usage and long words stay as they are.
			if words := len(strings.Fields(line)); width >= 80 || words > 2 && !strings.Contains(line, "minikubelet ") {
				assert.LessOrEqual(t, len(strings.TrimRight(line, "\n")), width, line)
			}
		}
	}
}

func TestScreensOfLists(t *testing.T) {
	running := podtest.Running("a", true)
	web := podtest.With(podtest.Pod(v1.PodRunning, podtest.Ended("setup", "Completed", 0, 0),
		podtest.Running("proxy", true), running, podtest.Restarted(podtest.Waiting("b", "CrashLoopBackOff", "back-off"),
			3, time.Minute)), func(p *v1.Pod) {
		p.UID, p.Annotations = "u1", map[string]string{podspec.AnnotationConfigSource: "file"}
		p.Status.PodIP, p.Spec.Containers[0].Image, p.Spec.Containers[1].Image = "10.0.0.7", "app:1", "app:2"
	})
	dns := podtest.Pod(v1.PodPending)
	dns.Namespace, dns.Name, dns.UID = "kube-system", "dns\x1b-n1", "u2"

	image := func(name string, size int64, seen time.Duration) gc.Image {
		return gc.Image{Image: runtime.Image{ID: "sha256:" + name, Tags: []string{name}, Size: size},
			FirstSeen: podtest.Ago(seen).Time}
	}
	app, pause := image("app:1", 5<<30, time.Hour), image("pause:1", 600, 48*time.Hour)
	app.LastUsed, pause.Pinned = podtest.Ago(time.Minute).Time, true

	cpu, memory, disk, processes := uint64(12_300_000), uint64(45<<20), uint64(3<<20), uint64(7)
	usage := statsv1alpha1.PodStats{
		PodRef:     statsv1alpha1.PodReference{Namespace: "default", Name: "web-n1", UID: "u1"},
		Containers: []statsv1alpha1.ContainerStats{{Name: "a"}},
		CPU:        &statsv1alpha1.CPUStats{UsageNanoCores: &cpu}, Memory: &statsv1alpha1.MemoryStats{
			WorkingSetBytes: &memory},
		EphemeralStorage: &statsv1alpha1.FsStats{UsedBytes: &disk}, ProcessStats: &statsv1alpha1.ProcessStats{
			ProcessCount: &processes},
	}
	summary := statsv1alpha1.Summary{Node: statsv1alpha1.NodeStats{NodeName: "n1", CPU: usage.CPU,
		Memory: usage.Memory}, Pods: []statsv1alpha1.PodStats{usage}}

	seen := runtime.Record{Pod: runtime.RefOf(web), Stage: runtime.StageSeen, Source: runtime.SourceEvent,
		Kind: runtime.KindContainerRunning, Container: "a"}
	started := runtime.Record{Pod: seen.Pod, Stage: runtime.StageDecided, Kind: runtime.KindStartContainer,
		Container: "b", Attempt: 3, Reason: "Exited", Message: "code 7"}
	past := []history.Entry{
		{Record: seen, Seq: 1, Count: 1, First: podtest.Ago(80 * time.Second).Time, Last: podtest.Ago(80 * time.Second).Time},
		{Record: started, Seq: 2, Count: 3, First: podtest.Ago(70 * time.Second).Time, Last: podtest.Ago(10 * time.Second).Time},
	}

	pull := "Failed to pull image \"app:3\": rpc error: code = NotFound desc = failed to resolve reference " +
		"\"registry.example.com/app:3\": not found"
	refused := runtime.Record{Pod: seen.Pod, Stage: runtime.StageDone, Kind: runtime.KindPullImage, Container: "b",
		Message: "app:3", Error: strings.SplitN(pull, ": ", 2)[1], Duration: time.Second}
	failed := podtest.Pod(v1.PodRunning, podtest.Ended("setup", "Completed", 0, 0), podtest.Running("proxy", true),
		running, podtest.Waiting("b", "ImagePullBackOff", "Back-off pulling image \"app:3\": ErrImagePull: "+pull))
	failed.Name, failed.UID, failed.Labels = "api-n1", "u3", map[string]string{"app": "api"}
	events := []runtime.Event{
		{Pod: runtime.RefOf(web), FieldPath: "spec.containers{a}", Type: "Normal", Reason: "Started", Message: "Container started", Count: 1, First: podtest.Ago(80 * time.Second).Time, Last: podtest.Ago(80 * time.Second).Time},
		{Pod: runtime.RefOf(failed), FieldPath: "spec.containers{b}", Type: "Warning", Reason: "Failed", Message: pull, Count: 4, First: podtest.Ago(time.Hour).Time, Last: podtest.Ago(9 * time.Second).Time},
	}
	failures := []history.Entry{{Record: refused, Seq: 1, Count: 4, First: podtest.Ago(time.Hour).Time,
		Last: podtest.Ago(9 * time.Second).Time}}

	var broken []control.Problem
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		broken = append(broken, control.Problem{Path: "/m/" + name + ".yaml", Error: "yaml: line 1:\n did not find " +
			"expected node content\x1b", Since: podtest.Ago(time.Hour).Time})
	}
	broken[1].Pod, broken[1].Error = "team-a/bad-n1", "pod team-a/bad-n1 is invalid: spec.containers[0].image: "+
		"Required value"
	web.Status.ContainerStatuses[0].Image, web.Status.ContainerStatuses[0].ImageID = "app:1", "sha256:app:1"
	node := v1.Node{Status: v1.NodeStatus{
		Capacity:    v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")},
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3500m")},
		Addresses:   []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}},
		NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.37.0", OSImage: "Debian", KernelVersion: "6.1", OperatingSystem: "linux",
			Architecture: "arm64", ContainerRuntimeVersion: "containerd://v2.1.4"},
		Conditions: []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue, Message: "kubelet has disk pressure"},
			{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
	node.Name, node.Labels = "n1", map[string]string{"zone": "a\x1b"}
	root := answering(t, map[string]any{
		control.NodePath:   node,
		control.EventsPath: events, control.HistoryPath + "u3": failures,
		control.HistoryPath: control.Histories{NodeName: "N1"}, control.ProblemsPath: broken[:1],
		control.StatusPath: control.Status{NodeName: "n1", Version: "minikubelet v1", PID: 7, Unhealthy: "no round for\n5m",
			NotReady: "the network is not ready", Pressure: []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodePIDPressure},
			Sources: []control.SourceStatus{{Name: "api"}, {Name: "file", Delivered: true, Pods: 3, Rejected: 1}}},
		"/pods": v1.PodList{Items: []v1.Pod{*dns, *web, *failed}}, "/stats/summary": summary, control.HistoryPath + "u1": past,
		control.ImagesPath: gc.ImagePreview{Input: gc.ImageInput{Images: []gc.Image{pause, app}, Now: podtest.Noon}},
	})
	bad := answering(t, map[string]any{
		"/pods": v1.PodList{Items: []v1.Pod{*web}}, control.ProblemsPath: broken, control.HistoryPath: control.Histories{NodeName: "N1"}, control.GonePath: []recent.Gone{},
		control.EventsPath: events[:1], control.HistoryPath + "u1": past,
	})
	none := answering(t, map[string]any{"/pods": v1.PodList{}, "/stats/summary": statsv1alpha1.Summary{},
		control.ImagesPath: gc.ImagePreview{}, control.ProblemsPath: []control.Problem{},
		control.StatusPath: control.Status{NodeName: "n1", Version: "minikubelet v1", PID: 7, Runtime: "containerd v2.1.4"}})
	for _, width := range []int{60, 80, 120} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			screenOf(t, fmt.Sprintf("width-%d", width), root, width, "pods", "describe api", "history api",
				"events", "images", "top")
			screenOf(t, fmt.Sprintf("width-%d-help", width), "", width, "", "help logs", "help gc", "help get",
				"help pods", "help exec")
			screenOf(t, fmt.Sprintf("width-%d-broken", width), bad, width, "pods", "describe a", "history a",
				"describe -n team-a bad")
		})
	}
	for name, commands := range map[string][]string{
		"events":  {"events", "events -o wide", "events api", "events --types Warning -o name", "events --types Warning -o json", "events --types x", "events -n kube-system", "get events"},
		"sorted":  {"pods --sort-by restarts", "pods --sort-by .metadata.name -o name", "pods --sort-by {.status.podIP} -o name", "pods --sort-by x", "pods -l app=api", "pods api -o name", "pods -l app=api web", "pods -l =", "images --sort-by size -o name", "top --sort-by cpu -o name", "top --sort-by x", "top -l app=api"},
		"inspect": {"inspect api", "inspect api -o wide"},
		"pods":    {"pods", "ps -o wide", "get pods -A -o name", "pods -n kube-system", "pods -n kube-system -o json", "pods -n kube-system -o yaml", "pods -o xml", "pods -n x -A"},
		"images":  {"images", "images -o wide", "get images -o name", "images -o json", "images -o yaml"},
		"top":     {"top", "top -o wide", "top --containers", "top -o name", "top -o json", "top -o yaml", "top node", "top node -o wide", "top node -o name", "top node -o json"},
		"history": {"history u1", "history u1 --since 30s", "history u1 --since 1s", "history u1 --since=-1s", "history u1 -o wide", "history u1 -o json", "history u1 -o yaml", "history u1 -o name", "history -f u1 -o yaml"},
		"broken":  {"pods", "pods -o name", "describe a", "describe /m/a.yaml", "describe -n team-a bad", "describe web", "history a", "history a -o json", "describe nothing"},
		"template": {"pods -o jsonpath={.items[*].metadata.name}", "pods web -o jsonpath={.spec.containers[0].image}{.x.y}",
			"status -o jsonpath={.nodeName}", "pods -o jsonpath={.x",
			"pods -o jsonpath"},
		"node":   {"describe node", "describe nodes x", "get nodes", "get no -o wide", "get node -o name"},
		"status": {"status", "status -o yaml", "status -o wide", "status x"},
		"none":   {"status", "pods", "pods -o name", "pods -o json", "top", "top -o yaml", "images", "images -o json"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := root
			switch name {
			case "none":
				dir = none
			case "broken":
				dir = bad
			}
			screen(t, name, dir, commands...)
		})
	}
}

// answering serves the answers by their paths as an agent does, and returns its root directory.
func answering(t *testing.T, answers map[string]any) (root string) {
	return serving(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch answer := answers[req.URL.Path].(type) {
		case nil:
			http.NotFound(w, req)
		case []runtime.Event:
			uids := req.URL.Query()["uid"]
			_ = json.NewEncoder(w).Encode(slices.DeleteFunc(slices.Clone(answer), func(e runtime.Event) bool {
				return len(uids) > 0 && !slices.Contains(uids, string(e.Pod.UID))
			}))
		case []history.Entry: // one after the other
			for _, e := range answer {
				_ = json.NewEncoder(w).Encode(e)
			}
		default:
			_ = json.NewEncoder(w).Encode(answer)
		}
	}))
}
