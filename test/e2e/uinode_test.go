package e2e

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// axe is axe-core 4.10.3 of npm, MPL-2.0: the file axe.min.js of its package, with its licence beside it.
//
//go:embed testdata/axe-core/axe.min.js.gz
var axe []byte

// accessible asserts, of what the page shows, that axe finds nothing and that nothing is wider than the screen: on a
// desk and on a phone, light and dark.
func (b *browser) accessible(t *testing.T, what string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(axe))
	require.NoError(t, err)
	script, err := io.ReadAll(z)
	require.NoError(t, err)
	eval[chromedp.Void](t, b, string(script)+"; undefined")
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			require.NoError(t, err)
			require.NoError(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(width, 900)))
			found := resolve[string](t, b, `axe.run().then(r => r.violations.map(v => v.id + ': ' + v.help + '\n' +
				v.nodes.map(n => '  ' + n.html + '\n    ' + n.failureSummary.replaceAll('\n', '\n    ')).join('\n')).join('\n'))`)
			assert.Empty(t, found, "%s at %d px, %s", what, width, scheme)
			assert.LessOrEqual(t, eval[int](t, b, "document.documentElement.scrollWidth"), int(width), "%s at %d px", what,
				width)
			name := fmt.Sprintf("all-%s-%d-%s", strings.ReplaceAll(what, " ", "-"), width, scheme)
			b.picture(t, name, width, 1000, scheme == "dark")
		}
	}
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(1280, 900)))
}

// nodeAnswers are what the agent of a node under pressure answers about it.
func nodeAnswers(now time.Time) map[string]any {
	amount := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
			"example.com/gpu": resource.MustParse("2")}
	}
	at := metav1.NewTime(now.Add(-time.Hour))
	return map[string]any{
		"/node": v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge7", CreationTimestamp: at}, Status: v1.NodeStatus{
			Capacity: amount("8", "16Gi"), Allocatable: amount("7500m", "15Gi"),
			Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}},
			Conditions: []v1.NodeCondition{
				{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Message: "kubelet has sufficient memory available",
					LastTransitionTime: at},
				{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue, Message: "kubelet has disk pressure",
					LastTransitionTime: at},
				{Type: v1.NodeReady, Status: v1.ConditionTrue, Message: "kubelet is posting ready status"}},
			NodeInfo: v1.NodeSystemInfo{OSImage: "Debian GNU/Linux 12", KernelVersion: "6.1.0", OperatingSystem: "linux",
				Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.37.2+kubeletkit"}}},
		"/status": map[string]any{"nodeName": "edge7", "version": "minikubelet v0.1.0", "pid": 812,
			"pressure": []string{"DiskPressure"}, "staticPodPath": "/etc/kubernetes/manifests",
			"sources": []any{map[string]any{"name": "file", "delivered": true, "pods": 12},
				map[string]any{"name": "api", "delivered": false}},
			"thresholds": []any{map[string]any{"signal": "memory.available", "value": "100Mi"},
				map[string]any{"signal": "memory.available", "value": "1Gi", "gracePeriod": "1m30s"},
				map[string]any{"signal": "nodefs.available", "value": "10%"},
				map[string]any{"signal": "imagefs.available", "value": "15%"}},
			"certificates": []any{map[string]any{"name": "client", "expires": now.Add(30 * 24 * time.Hour)},
				map[string]any{"name": "serving", "expires": now.Add(5*24*time.Hour + 30*time.Minute)}}},
		"/resources": []any{map[string]any{"namespace": "team-1", "pod": "service-001-edge7", "container": "main",
			"resource": "example.com/gpu", "held": "gpu-0", "nodes": "0"}},
		"/images": map[string]any{"Input": map[string]any{"Now": now, "Policy": map[string]any{
			"HighThresholdPercent": 85, "LowThresholdPercent": 80}, "Images": []any{
			map[string]any{"ID": "sha256:1", "Tags": []string{"registry.example.com/shop/service:1.4.2"}, "Size": 120 << 20,
				"FirstSeen": at, "LastUsed": now},
			map[string]any{"ID": "sha256:2", "Tags": []string{"registry.example.com/shop/" + hostile}, "Size": 900 << 20,
				"FirstSeen": at}}}},
		"/stats/summary": map[string]any{"node": map[string]any{
			"cpu": map[string]any{"time": now, "usageNanoCores": 2.6e9, "psi": psiOf(12.5)},
			"memory": map[string]any{"time": now, "availableBytes": 5 << 30, "workingSetBytes": 11 << 30,
				"psi": psiOf(0.3)},
			"io":      map[string]any{"time": now, "psi": psiOf(41)},
			"swap":    map[string]any{"time": now, "swapAvailableBytes": 2 << 30, "swapUsageBytes": 1 << 28},
			"fs":      map[string]any{"availableBytes": 8 << 30, "capacityBytes": 100 << 30, "inodesFree": 900, "inodes": 1000},
			"runtime": map[string]any{"imageFs": map[string]any{"availableBytes": 30 << 30, "capacityBytes": 200 << 30}},
			"rlimit":  map[string]any{"maxpid": 32768, "curproc": 411}}},
	}
}

func psiOf(share float64) any {
	return map[string]any{"some": map[string]any{"avg10": share, "avg60": share / 2, "avg300": share / 4},
		"full": map[string]any{"avg10": share / 3}}
}

// The page of the node has what is used with the thresholds, conditions, pressure, sources, devices, certificates,
// evictions, and images with those that use them.
func TestUINode(t *testing.T) {
	t.Parallel()
	a := newScriptedAgent(t, manyPods(5))
	now := time.Now()
	a.answers = nodeAnswers(now)
	for i := range a.pods {
		a.pods[i].Status.ContainerStatuses[0].Image = "registry.example.com/shop/service:1.4.2"
	}
	crashing(&a.pods[3])
	ready(false)(&a.pods[4])
	a.events["uid-9"] = []runtime.Event{{Pod: runtime.PodRef{UID: "uid-9", Namespace: "team-9", Name: "cache"},
		Type: v1.EventTypeWarning, Reason: "Evicted", Count: 1, First: now, Last: now,
		Message: "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 8Gi. "}}
	a.start(t)
	b := openBrowser(t, startUI(t, a.root))
	b.await(t, "the list", "document.querySelectorAll('#pods tr').length === 5")
	b.accessible(t, "the list")
	eval[chromedp.Void](t, b, "document.querySelector('header nav a[href=\"#/node\"]').focus()")
	require.NoError(t, chromedp.Do(b.ctx, chromedp.KeyEvent("\r")))
	b.await(t, "the node", "document.querySelector('#nodename').innerText === 'edge7'")
	b.await(t, "its images", "document.querySelectorAll('#images li').length === 2")
	for _, text := range []string{"Ready,DiskPressure", "containerd://2.1.4", "92 GiB of 100 GiB",
		"evicts pods at less than 10%", "evicts pods at less than 1Gi for 1m30s", "removes images at 85%, to 80%",
		"True kubelet has disk pressure", "some tasks waited 41.0 % of 10 s", "capacity 2, allocatable 2",
		"has not delivered its pods", "ends in 5d", "example.com/gpu gpu-0 of memory nodes 0",
		"The node was low on resource", "Used by team-0/service-000-edge7, team-1/service-001-edge7", "No pod uses it",
		hostile} {
		assert.Contains(t, eval[string](t, b, "document.querySelector('#nodepage').innerText"), text)
	}
	assert.Equal(t, []string{"CPU", "Memory", "Swap", "Disk:bad", "Inodes", "Images:waits", "Processes"},
		eval[[]string](t, b, `[...document.querySelectorAll('.meter')].map(m => m.querySelector('figcaption').firstChild.data +
			(m.dataset.tone === 'good' ? '' : ':' + m.dataset.tone))`))
	b.accessible(t, "the node")
	b.picture(t, "ui-node", 1040, 1042, false)
	require.NoError(t, chromedp.Do(b.ctx, chromedp.KeyEvent("\x1b")))
	b.await(t, "the list", "!document.querySelector('#list').hidden")
	b.noProblem(t)
}

// answer answers with the value of the path in answers, if there is one.
func (a *scriptedAgent) answer(w http.ResponseWriter, req *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	value, ok := a.answers[req.URL.Path]
	if ok {
		_ = json.NewEncoder(w).Encode(value) // a client that went away
	}
	return ok
}
