package podspec_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// pod returns a pod that requests the resources, as in "cpu", "500m".
func requesting(pairs ...string) *v1.Pod {
	requests := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		requests[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return &v1.Pod{
		Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}}}
}

func TestShortages(t *testing.T) {
	has := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Ki"),
		"a.com/x": resource.MustParse("1"), "a.com/b": resource.MustParse("1"),
	}
	capacity := func(name v1.ResourceName) (resource.Quantity, bool) {
		q, limited := has[name]
		return q, limited
	}
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		active []*v1.Pod
		want   []podspec.Shortage
	}{
		"exactly":                  {requesting("cpu", "500m", "memory", "24"), []*v1.Pod{requesting("cpu", "1"), requesting("cpu", "500m", "memory", "1000")}, nil},
		"nothing, on a full node":  {requesting("cpu", "0"), []*v1.Pod{requesting("cpu", "3")}, nil},
		"no limit":                 {requesting("ephemeral-storage", "1Ti"), nil, nil},
		"too much of everything":   {requesting("a.com/x", "2", "memory", "1025", "cpu", "2001m", "a.com/b", "3"), nil, []podspec.Shortage{{"cpu", 2001, 0, 2000}, {"memory", 1025, 0, 1024}, {"a.com/b", 3, 0, 1}, {"a.com/x", 2, 0, 1}}},
		"used":                     {requesting("cpu", "1m"), []*v1.Pod{requesting("cpu", "1999m"), requesting("cpu", "1m")}, []podspec.Shortage{{"cpu", 1, 2000, 2000}}},
		"more used than there is":  {requesting("memory", strconv.Itoa(math.MaxInt64)), []*v1.Pod{requesting("memory", "4Ki")}, []podspec.Shortage{{"memory", math.MaxInt64, 4096, 1024}}},
		"others may use something": {requesting("memory", "1"), []*v1.Pod{requesting("cpu", "9")}, nil},
	} {
		assert.Equal(t, tc.want, podspec.Shortages(tc.pod, tc.active, podspec.Requests, capacity), name)
	}
}

// The sum of the requests has more than 64 bits, and so the lower ones of it are small or negative.
func TestAbsurdRequests(t *testing.T) {
	const most = math.MaxInt64
	has := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Ki")}
	capacity := func(name v1.ResourceName) (resource.Quantity, bool) {
		q, limited := has[name]
		return q, limited
	}
	of := func(requests ...*v1.Pod) *v1.Pod {
		all := &v1.Pod{}
		for _, r := range requests {
			all.Spec.Containers = append(all.Spec.Containers, r.Spec.Containers...)
		}
		return all
	}
	memory := func(amount string) *v1.Pod { return requesting("memory", amount) }
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		active []*v1.Pod
		want   []podspec.Shortage
	}{
		"memory, -2":             {of(memory(strconv.Itoa(most)), memory(strconv.Itoa(most))), nil, []podspec.Shortage{{"memory", most, 0, 1024}}},
		"memory, 0":              {of(memory(strconv.Itoa(most)), memory(strconv.Itoa(most)), memory("2")), nil, []podspec.Shortage{{"memory", most, 0, 1024}}},
		"memory of the others":   {memory("1"), []*v1.Pod{memory(strconv.Itoa(most)), memory(strconv.Itoa(most))}, []podspec.Shortage{{"memory", 1, most, 1024}}},
		"more than a quantity":   {memory("100E"), nil, []podspec.Shortage{{"memory", most, 0, 1024}}},
		"CPU, 0 thousandths":     {requesting("cpu", "10000000000000000"), nil, []podspec.Shortage{{"cpu", most, 0, 2000}}},
		"CPU, some thousandths":  {requesting("cpu", "18446744073709551.616"), nil, []podspec.Shortage{{"cpu", most, 0, 2000}}},
		"CPU in two containers":  {of(requesting("cpu", "9223372036854775"), requesting("cpu", "9223372036854775")), nil, []podspec.Shortage{{"cpu", most, 0, 2000}}},
		"CPU of which 2 is free": {requesting("cpu", "1"), []*v1.Pod{requesting("cpu", "1")}, nil},
	} {
		got := podspec.Shortages(tc.pod, tc.active, podspec.Requests, capacity)
		assert.Equal(t, tc.want, got, name)
		for _, s := range got {
			assert.Positive(t, s.Missing(), name)
		}
	}
	assert.EqualValues(t, most, podspec.Shortage{Requested: most, Used: most, Capacity: 1}.Missing())
	assert.EqualValues(t, most, podspec.Shortage{Requested: most, Used: 1}.Missing())
	assert.EqualValues(t, most-1, podspec.Shortage{Requested: most, Used: 1, Capacity: 2}.Missing())
}

func TestShortage(t *testing.T) {
	s, short := podspec.PodShortage(3, 3)
	assert.True(t, short)
	assert.Equal(t, "OutOfpods", s.Reason())
	assert.Equal(t, "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3", s.Message())
	assert.EqualValues(t, 1, s.Missing())
	_, short = podspec.PodShortage(2, 3)
	assert.False(t, short)
	assert.EqualValues(t, 501, podspec.Shortage{Resource: v1.ResourceCPU, Requested: 1001, Used: 1500,
		Capacity: 2000}.Missing())
}
