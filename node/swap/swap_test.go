package swap

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kubelet's memory of the machine in the cases.
const memory = 8 << 30

// The limits are those that kubelet has given the same pods; see testdata/kubelet of runtime/cri/internal/translate.
func TestAsKubelet(t *testing.T) {
	f, err := os.Open("../../runtime/cri/internal/translate/testdata/kubelet/golden.jsonl")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	limited, none := 0, 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var g struct {
			Name string
			Node struct {
				CgroupV2, SwapControl bool
				SwapCapacity          int64
			}
			Pod        *v1.Pod
			Containers map[string]struct {
				Config struct {
					Linux struct {
						Resources struct{ Unified map[string]string }
					}
				}
			}
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &g))
		if g.Node.SwapCapacity == 0 || !g.Node.CgroupV2 || !g.Node.SwapControl {
			continue
		}
		for _, c := range podspec.Containers(&g.Pod.Spec) {
			want := g.Containers[c.Name].Config.Linux.Resources.Unified["memory.swap.max"]
			got := Limit(g.Pod, c, Machine{Memory: memory, Swap: g.Node.SwapCapacity})
			assert.Equal(t, want, strconv.FormatInt(got, 10), "%s/%s", g.Name, c.Name)
			if got > 0 {
				limited++
			} else {
				none++
			}
		}
	}
	require.NoError(t, lines.Err())
	assert.Equal(t, 5, limited)
	assert.Greater(t, none, 20)
}

func burstable(request, limit string, policy ...v1.ContainerResizePolicy) *v1.Pod {
	return testpod.With(testpod.New("web", testpod.Containers("main")), func(p *v1.Pod) {
		r := &p.Spec.Containers[0].Resources
		r.Requests, r.Limits = v1.ResourceList{}, v1.ResourceList{}
		if request != "" {
			r.Requests[v1.ResourceMemory] = resource.MustParse(request)
		}
		if limit != "" {
			r.Limits[v1.ResourceMemory] = resource.MustParse(limit)
		}
		p.Spec.Containers[0].ResizePolicy = policy
	})
}

// Together, containers whose requests fit the machine do not get more swap than it has.
func TestLimitsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Machine{Memory: rapid.Int64Range(1, 1<<45).Draw(t, "memory"),
			Swap: rapid.Int64Range(0, 1<<45).Draw(t, "swap")}
		var sum int64
		left := m.Memory
		for range rapid.IntRange(1, 20).Draw(t, "containers") {
			request := rapid.Int64Range(0, left).Draw(t, "request")
			left -= request
			pod := burstable(strconv.FormatInt(request, 10), strconv.FormatInt(request+1, 10))
			limit := Limit(pod, &pod.Spec.Containers[0], m)
			assert.GreaterOrEqual(t, limit, int64(0))
			sum += limit
		}
		assert.LessOrEqual(t, sum, m.Swap)
	})
}

func TestAbsurdMachines(t *testing.T) {
	pod := burstable("1Gi", "2Gi")
	for _, m := range []Machine{{}, {Memory: 1 << 40}, {Memory: -1, Swap: 1}, {Memory: 1, Swap: 1 << 40},
		{Memory: 1 << 40, Swap: -1}} {
		assert.Zero(t, Limit(pod, &pod.Spec.Containers[0], m), m)
	}
	assert.Equal(t, int64(1<<63-1), Limit(pod, &pod.Spec.Containers[0], Machine{Memory: 1 << 30, Swap: 1<<63 - 1}))
	negative := burstable("-1Gi", "2Gi")
	assert.Zero(t, Limit(negative, &negative.Spec.Containers[0], Machine{Memory: 1 << 40, Swap: 1 << 40}))
}

func TestEditContainer(t *testing.T) {
	pod := burstable("1Gi", "2Gi")
	var lines []string
	opts := Options{
		Behavior: LimitedSwap, Machine: func() (Machine, error) { return Machine{Memory: 8 << 30, Swap: 2 << 30}, nil },
	}
	edit := func(l *Limiter, pod *v1.Pod) *int64 {
		e, err := l.EditContainer(t.Context(), pod, &pod.Spec.Containers[0])
		require.NoError(t, err)
		assert.Equal(t, runtime.ContainerEdits{MemorySwap: e.MemorySwap}, e)
		return e.MemorySwap
	}
	l, err := New(opts)
	require.NoError(t, err)
	assert.Equal(t, int64(256<<20), *edit(l, pod))
	assert.Nil(t, edit(l, burstable("", "")))

	for _, b := range []Behavior{"", NoSwap} {
		off, err := New(Options{Behavior: b})
		require.NoError(t, err)
		assert.Nil(t, edit(off, pod))
	}
	_, err = New(Options{Behavior: "UnlimitedSwap"})
	require.ErrorContains(t, err, `"UnlimitedSwap"`)

	opts.Machine = func() (Machine, error) { return Machine{}, errors.New("no machine") }
	broken, err := New(opts)
	require.NoError(t, err)
	require.NoError(t, broken.Join(&nodefake.Node{
		Log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})}))
	for range 2 {
		assert.Nil(t, edit(broken, pod))
	}
	assert.Len(t, lines, 1)
}

func TestReadMachine(t *testing.T) {
	m, err := ReadMachine()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.Positive(t, m.Memory)
	assert.GreaterOrEqual(t, m.Swap, int64(0))
}

// A resize of requested memory would change the limit of swap.
func TestResizes(t *testing.T) {
	restart := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}
	keep := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.NotRequired}
	l, err := New(Options{Behavior: LimitedSwap})
	require.NoError(t, err)
	off, err := New(Options{})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		held, pod *v1.Pod
		refused   bool
	}{
		"another request":                 {burstable("1Gi", "2Gi"), burstable("1500Mi", "2Gi"), true},
		"another request, no restart":     {burstable("1Gi", "2Gi", keep), burstable("1500Mi", "2Gi"), true},
		"another request, with a restart": {burstable("1Gi", "2Gi", restart), burstable("1500Mi", "2Gi", restart), false},
		"another limit":                   {burstable("1Gi", "2Gi"), burstable("1Gi", "3Gi"), false},
		"swap comes":                      {burstable("1Gi", "1Gi"), burstable("500Mi", "1Gi"), true},
		"swap goes":                       {burstable("500Mi", "1Gi"), burstable("1Gi", "1Gi"), true},
		"no swap before and after":        {burstable("1Gi", "1Gi"), burstable("2Gi", "2Gi"), false},
		"the container was not there":     {testpod.New("web", testpod.Containers("other")), burstable("1Gi", "2Gi"), false},
		"a new pod":                       {nil, burstable("1Gi", "2Gi"), false},
	} {
		_, err := l.Admit(lifecycle.AdmitRequest{Pod: test.pod, Held: test.held})
		refusal := (*runtime.TerminalError)(nil)
		assert.Equal(t, test.refused, errors.As(err, &refusal), name)
		if test.refused && refusal != nil {
			assert.Equal(t, v1.PodReasonInfeasible, refusal.Reason)
			assert.Equal(t, messageResize, refusal.Message)
		}
		_, err = off.Admit(lifecycle.AdmitRequest{Pod: test.pod, Held: test.held})
		assert.NoError(t, err)
	}
}
