package admission_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/admission"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// list makes a resource list of names and quantities by turns.
func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// pod returns a pod with one container that requests the resources.
func pod(name string, requests v1.ResourceList, options ...testpod.Option) *v1.Pod {
	p := testpod.New(name, testpod.Containers("main"))
	p.Spec.Containers[0].Resources.Requests = requests
	for _, option := range options {
		option(p)
	}
	return p
}

func priority(n int32) testpod.Option { return func(p *v1.Pod) { p.Spec.Priority = &n } }

// limits makes the pod guaranteed.
func limits(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
}

const critical = 2_000_000_000

func node() *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Labels: map[string]string{"zone": "a"}},
		Status: v1.NodeStatus{Allocatable: list("cpu", "2", "memory", "1000", "pods", "3",
			"ephemeral-storage", "500", "hugepages-2Mi", "4Mi", "example.com/gpu", "1")},
	}
}

func TestFailures(t *testing.T) {
	greater := pod("p", nil, func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: "age", Operator: v1.TolerationOpGt, Value: "4"}}
	})
	aged := node()
	aged.Spec.Taints = []v1.Taint{{Key: "age", Value: "5", Effect: v1.TaintEffectNoExecute}}
	taint := func(n *v1.Node, effect v1.TaintEffect) *v1.Node {
		n.Spec.Taints = []v1.Taint{{Key: "broken", Value: "yes", Effect: effect}}
		return n
	}
	half := pod("half", list("cpu", "1500m", "memory", "600"))
	for name, tc := range map[string]struct {
		pod         *v1.Pod
		active      []*v1.Pod
		node        *v1.Node
		unconfirmed bool
		compare     bool
		want        []string
	}{
		"nothing requested": {pod: pod("p", nil), active: []*v1.Pod{half}},
		"fits exactly":      {pod: pod("p", list("cpu", "500m", "memory", "400")), active: []*v1.Pod{half}},
		"cpu and memory": {pod: pod("p", list("memory", "401", "cpu", "501m")), active: []*v1.Pod{half}, want: []string{
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
			"OutOfmemory: Node didn't have enough resource: memory, requested: 401, used: 600, capacity: 1000"}},
		"storage":    {pod: pod("p", list("ephemeral-storage", "501")), want: []string{"OutOfephemeral-storage: Node didn't have enough resource: ephemeral-storage, requested: 501, used: 0, capacity: 500"}},
		"huge pages": {pod: pod("p", list("hugepages-2Mi", "6Mi")), want: []string{"OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 6291456, used: 0, capacity: 4194304"}},
		"huge pages that the node does not have": {pod: pod("p", list("hugepages-1Gi", "1Gi")),
			want: []string{"OutOfhugepages-1Gi: Node didn't have enough resource: hugepages-1Gi, requested: " +
				"1073741824, used: 0, capacity: 0"}},
		"extended":             {pod: pod("p", list("example.com/gpu", "1"))},
		"extended, used":       {pod: pod("p", list("example.com/gpu", "1")), active: []*v1.Pod{pod("q", list("example.com/gpu", "1"))}, want: []string{"OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1"}},
		"extended, of cluster": {pod: pod("p", list("example.com/license", "7"))},
		"too many pods":        {pod: pod("p", nil), active: []*v1.Pod{pod("1", nil), pod("2", nil), pod("3", nil)}, want: []string{"OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"}},
		"overhead": {pod: pod("p", list("cpu", "1900m"), func(p *v1.Pod) { p.Spec.Overhead = list("cpu", "200m") }),
			want: []string{
				"OutOfcpu: Node didn't have enough resource: cpu, requested: 2100, used: 0, capacity: 2000"}},
		"resource that is not known, unsure": {pod: pod("p", list("ephemeral-storage", "1")), unconfirmed: true,
			node: &v1.Node{Status: v1.NodeStatus{Allocatable: list("cpu", "2")}}},
		"selector":         {pod: pod("p", nil, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} })},
		"selector, other":  {pod: pod("p", nil, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }), want: []string{"NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}},
		"selector, unsure": {pod: pod("p", nil, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }), unconfirmed: true},
		"affinity": {pod: pod("p", nil, func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{
				NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{
						MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn,
							Values: []string{"edge-8"}}},
					}}}}}
		}), want: []string{"NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node " +
			"affinity/selector"}},
		"other node": {pod: pod("p", nil, func(p *v1.Pod) { p.Spec.NodeName = "edge-8" }), want: []string{"NodeName: Predicate NodeName failed: node(s) didn't match the requested node name"}},
		"taint": {pod: pod("p", nil), node: taint(node(), v1.TaintEffectNoExecute),
			want: []string{"TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod " +
				"didn't tolerate"}},
		"taint of the scheduler": {pod: pod("p", nil), node: taint(node(), v1.TaintEffectNoSchedule)},
		"taint, static pod":      {pod: pod("p", nil, testpod.Static), node: taint(node(), v1.TaintEffectNoExecute)},
		"taint, tolerated": {pod: pod("p", nil, func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "broken", Operator: v1.TolerationOpExists}}
		}), node: taint(node(), v1.TaintEffectNoExecute)},
		"taint, tolerated by a comparison": {pod: greater, node: aged, compare: true},
		"taint, tolerated by a comparison, which is off": {pod: greater, node: aged, want: []string{"TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod " +
			"didn't tolerate"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := tc.node
			if n == nil {
				n = node()
			}
			var got []string
			for _, f := range admission.Failures(tc.pod, tc.active,
				admission.Node{Node: n, Confirmed: !tc.unconfirmed, CompareTaints: tc.compare}) {
				got = append(got, f.Reason+": "+f.Message)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func names(pods []*v1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestPreempt(t *testing.T) {
	small, large := pod("small", list("memory", "100")), pod("large", list("memory", "400"))
	best := pod("best", nil)
	guaranteed := pod("guaranteed", list("cpu", "1", "memory", "1000"), limits)
	memory := func(n int64) []admission.Failure {
		return []admission.Failure{{Resource: v1.ResourceMemory, Missing: n}}
	}
	for name, tc := range map[string]struct {
		by      *v1.Pod
		active  []*v1.Pod
		missing []admission.Failure
		want    []string
		err     string
	}{
		"the smallest that is enough":            {active: []*v1.Pod{large, small, best}, missing: memory(90), want: []string{"small"}},
		"one large instead of two":               {active: []*v1.Pod{small, large}, missing: memory(300), want: []string{"large"}},
		"guaranteed only if nothing else helps":  {active: []*v1.Pod{guaranteed, small, large}, missing: memory(450), want: []string{"large", "small"}},
		"no burstable in vain":                   {active: []*v1.Pod{guaranteed, small, large}, missing: memory(900), want: []string{"guaranteed"}},
		"a place for a pod":                      {active: []*v1.Pod{guaranteed, small, best}, missing: []admission.Failure{{Resource: v1.ResourcePods, Missing: 1}}, want: []string{"best"}},
		"not enough":                             {active: []*v1.Pod{small}, missing: memory(200), err: "would leave missing: memory 100"},
		"critical pods stay":                     {active: []*v1.Pod{pod("c", list("memory", "500"), priority(critical)), pod("s", list("memory", "500"), testpod.Static)}, missing: memory(1), err: "memory 1"},
		"critical pods of lower priority do not": {by: pod("p", nil, priority(critical+1)), active: []*v1.Pod{pod("c", list("memory", "500"), priority(critical))}, missing: memory(1), want: []string{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			by := tc.by
			if by == nil {
				by = pod("p", nil, testpod.Static)
			}
			victims, err := admission.Preempt(by, tc.active, tc.missing)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, names(victims))
		})
	}
}

// Whatever is active: a critical pod that is admitted fits once the preempted pods have
// ended, none of these is critical, and it is refused only if it would not fit on the node
// beside the critical pods.
func TestPreemptionIsEnoughAndNeverTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amounts := func(label string) v1.ResourceList {
			return list("cpu", fmt.Sprint(rapid.IntRange(0, 2).Draw(t, label+" cpu")),
				"memory", fmt.Sprint(rapid.IntRange(0, 600).Draw(t, label+" memory")))
		}
		var active []*v1.Pod
		for i := range rapid.IntRange(0, 6).Draw(t, "active") {
			p := pod(fmt.Sprint("active-", i), amounts("active"))
			switch rapid.IntRange(0, 3).Draw(t, "class") {
			case 0:
				priority(critical)(p)
			case 1:
				limits(p)
			case 2:
				p.Spec.Containers[0].Resources.Requests = nil
			}
			active = append(active, p)
		}
		n := admission.Node{Node: node(), Confirmed: true}
		by := pod("by", amounts("by"), testpod.Static)
		a, err := admission.New(admission.Options{Node: func() admission.Node { return n }})
		require.NoError(t, err)
		response, refused := a.Admit(lifecycle.AdmitRequest{Pod: by, Active: active})
		ended := map[types.UID]bool{}
		for _, e := range response.Evict {
			ended[e.Pod.UID] = true
		}
		var left, untouchable []*v1.Pod
		for _, p := range active {
			if podspec.IsCritical(p) {
				require.False(t, ended[p.UID], "a critical pod was preempted")
				untouchable = append(untouchable, p)
			}
			if !ended[p.UID] {
				left = append(left, p)
			}
		}
		if refused == nil {
			require.Empty(t, admission.Failures(by, left, n))
			return
		}
		require.Empty(t, ended, "pods were ended for a pod that was refused")
		require.NotEmpty(t, admission.Failures(by, untouchable, n))
	})
}

func reason(t *testing.T, err error) string {
	t.Helper()
	var refusal *runtime.TerminalError
	require.ErrorAs(t, err, &refusal)
	return refusal.Reason
}

func admit(a *admission.Admitter, req lifecycle.AdmitRequest) error {
	_, err := a.Admit(req)
	return err
}

func TestAdmitter(t *testing.T) {
	var ended []types.UID
	n := node()
	admit := func(a *admission.Admitter, req lifecycle.AdmitRequest) error {
		r, err := a.Admit(req)
		for _, e := range r.Evict {
			assert.Equal(t, "Preempting: Preempted in order to admit critical pod", e.Reason+": "+e.Message)
			ended = append(ended, e.Pod.UID)
		}
		return err
	}
	opts := admission.Options{
		Node: func() admission.Node { return admission.Node{Node: n, Confirmed: true} },
	}
	a, err := admission.New(opts)
	require.NoError(t, err)
	full := pod("full", list("memory", "900"))
	other := pod("other", list("memory", "100"))
	active := []*v1.Pod{full, other}

	assert.Equal(t,
		"OutOfmemory",
		reason(t, admit(a, lifecycle.AdmitRequest{Pod: pod("p", list("memory", "200")), Active: active})),
		"an ordinary pod preempts none")
	assert.Empty(t, ended)

	first := pod("first", list("memory", "800"), priority(critical))
	require.NoError(t, admit(a, lifecycle.AdmitRequest{Pod: first, Active: active}))
	assert.Equal(t, []types.UID{"uid-full"}, ended)

	// The first critical pod holds resources now, and the preempted one is still ending.
	active = append(active, first)
	second := pod("second", list("memory", "150"), priority(critical))
	require.NoError(t, admit(a, lifecycle.AdmitRequest{Pod: second, Active: active}))
	assert.Equal(t, []types.UID{"uid-full", "uid-full", "uid-other"}, ended, "it also waits for the one that is ending")

	third := pod("third", list("memory", "100"), priority(critical))
	assert.Equal(t,
		"OutOfmemory", reason(t, admit(a, lifecycle.AdmitRequest{Pod: third, Active: append(active, second)})),
		"only critical pods are left")

	wrong := pod("wrong", list("memory", "1"), priority(critical), func(p *v1.Pod) { p.Spec.NodeName = "edge-8" })
	assert.Equal(t, "NodeName", reason(t, admit(a, lifecycle.AdmitRequest{Pod: wrong, Active: active})),
		"no preemption if that does not help")

	assert.Equal(t, "PodOSSelectorNodeLabelDoesNotMatch",
		reason(t,
			admit(a,
				lifecycle.AdmitRequest{Pod: pod("w", nil,
					func(p *v1.Pod) { p.Labels = map[string]string{v1.LabelOSStable: "plan9"} })})))
	n = nil
	assert.Equal(t, "InvalidNodeInfo", reason(t, admit(a, lifecycle.AdmitRequest{Pod: pod("p", nil)})))
}

// A label may reach the scheduler before it reaches this node.
func TestFreshLabels(t *testing.T) {
	fresh, answers := node(), true
	fresh.Labels["disk"] = "fast"
	asked := 0
	a, err := admission.New(admission.Options{
		Node: func() admission.Node { return admission.Node{Node: node(), Confirmed: true} },
		Refresh: func() (admission.Node, bool) {
			asked++
			return admission.Node{Node: fresh, Confirmed: true}, answers
		},
	})
	require.NoError(t, err)
	selects := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }
	require.NoError(t, admit(a, lifecycle.AdmitRequest{Pod: pod("p", nil, selects)}))
	require.NoError(t, admit(a, lifecycle.AdmitRequest{Pod: pod("q", nil)}))
	assert.Equal(t, 1, asked, "only if labels do not match")
	assert.Equal(t,
		"OutOfmemory", reason(t, admit(a, lifecycle.AdmitRequest{Pod: pod("r", list("memory", "2000"), selects)})))
	assert.Equal(t, 1, asked, "not if the pod would be refused anyway")
	answers = false
	assert.Equal(t, "NodeAffinity", reason(t, admit(a, lifecycle.AdmitRequest{Pod: pod("s", nil, selects)})))
}

func BenchmarkAdmit500Active(b *testing.B) {
	n := node()
	n.Status.Allocatable = list("cpu", "1000", "memory", "1Ti", "pods", "1000")
	var active []*v1.Pod
	for i := range 500 {
		active = append(active, pod(fmt.Sprint(i), list("cpu", "100m", "memory", "10Mi")))
	}
	p := pod("p", list("cpu", "1", "memory", "1Gi"))
	a, err := admission.New(
		admission.Options{Node: func() admission.Node { return admission.Node{Node: n, Confirmed: true} }})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, admit(a, lifecycle.AdmitRequest{Pod: p, Active: active}))
	}
}

// A user who may bind pods to nodes causes a read of the node object for each of them.
// No other pod is handled meanwhile, so that takes a tenth of the time at most.
func TestRefreshesHaveAShareOfTheTime(t *testing.T) {
	for name, took := range map[string]time.Duration{"a server that does not answer": time.Second,
		"a budget that is used up": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fresh := node()
				fresh.Labels["disk"] = "fast"
				blocked := time.Duration(0)
				a, err := admission.New(admission.Options{
					Node: func() admission.Node { return admission.Node{Node: node(), Confirmed: true} },
					Refresh: func() (admission.Node, bool) {
						time.Sleep(took)
						blocked += took
						return admission.Node{Node: fresh, Confirmed: true}, took < time.Second
					},
				})
				require.NoError(t, err)
				began := time.Now()
				for i := range 10_000 {
					p := pod(fmt.Sprint(i), nil,
						func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "other"} })
					assert.Equal(t, "NodeAffinity", reason(t, admit(a, lifecycle.AdmitRequest{Pod: p})))
					time.Sleep(10 * time.Millisecond)
				}
				assert.LessOrEqual(t, blocked, time.Since(began)/9)
				assert.Positive(t, blocked)
				if took < time.Second { // the last answer holds
					p := pod("fits", nil, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} })
					require.NoError(t, admit(a, lifecycle.AdmitRequest{Pod: p}))
				}
			})
		})
	}
}
