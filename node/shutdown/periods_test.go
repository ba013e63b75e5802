package shutdown_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
)

// The priorities of the tables are those of kubelet 1.37 (pkg/apis/scheduling).
const (
	highestUserDefinable = 1_000_000_000
	systemCritical       = 2_000_000_000
	nodeCritical         = systemCritical + 1000
)

func makePod(name string, priority int32) *v1.Pod {
	return testpod.With(testpod.New(name),
		func(p *v1.Pod) { p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = &priority, nil })
}

func seconds(priority int32, n int) shutdown.Period {
	return shutdown.Period{Priority: priority, GracePeriod: time.Duration(n) * time.Second}
}

// The cases and numbers are those of Test_migrateConfig in kubelet 1.37, pkg/kubelet/nodeshutdown.
func TestClasses(t *testing.T) {
	for name, c := range map[string]struct {
		total, critical time.Duration
		want            shutdown.Periods
	}{
		"both":                   {300 * time.Second, 120 * time.Second, shutdown.Periods{seconds(0, 180), seconds(systemCritical, 120)}},
		"total only":             {100 * time.Second, 0, shutdown.Periods{seconds(0, 100), seconds(systemCritical, 0)}},
		"none":                   {0, 0, nil},
		"critical above total":   {time.Second, 100 * time.Second, nil},
		"critical below 0":       {time.Second, -1, nil},
		"critical without total": {0, time.Second, nil},
		"parts of seconds":       {2500 * time.Millisecond, 1100 * time.Millisecond, shutdown.Periods{seconds(0, 1), seconds(systemCritical, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := shutdown.Classes(c.total, c.critical)
			assert.Equal(t, c.want, got)
			assert.NoError(t, got.Validate())
		})
	}
}

// The first two cases are those of Test_groupByPriority in kubelet 1.37.
func TestGroups(t *testing.T) {
	four := shutdown.ByPriority(seconds(4, 40), seconds(1, 10), seconds(3, 30), seconds(2, 20))
	type group struct {
		priority int32
		seconds  int
		pods     []string
	}
	for name, c := range map[string]struct {
		periods shutdown.Periods
		pods    []*v1.Pod
		want    []group
	}{
		"classes": {
			shutdown.Classes(300*time.Second, 120*time.Second),
			[]*v1.Pod{makePod("normal", 0), makePod("highest", highestUserDefinable),
				makePod("critical", systemCritical), makePod("node", nodeCritical)},
			[]group{{0, 180, []string{"normal", "highest"}}, {systemCritical, 120, []string{"critical", "node"}}},
		},
		"priorities": {
			four,
			[]*v1.Pod{makePod("0", 0), makePod("1", 1), makePod("2", 2), makePod("3", 3),
				makePod("4", 4), makePod("5", 5)},
			[]group{{1, 10, []string{"0", "1"}}, {2, 20, []string{"2"}}, {3, 30, []string{"3"}},
				{4, 40, []string{"4", "5"}}},
		},
		"groups without pods": {four, []*v1.Pod{makePod("3", 3), makePod("low", -5)}, []group{{1, 10, []string{"low"}}, {3, 30, []string{"3"}}}},
		"no priority":         {shutdown.Classes(time.Minute, time.Second), []*v1.Pod{testpod.New("web")}, []group{{0, 59, []string{"web"}}}},
		"between":             {shutdown.ByPriority(seconds(10, 1), seconds(1000, 2)), []*v1.Pod{makePod("999", 999), makePod("1000", 1000)}, []group{{10, 1, []string{"999"}}, {1000, 2, []string{"1000"}}}},
		"no pods":             {four, nil, nil},
		"no periods":          {nil, []*v1.Pod{makePod("web", 0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []group
			for _, g := range c.periods.Groups(c.pods) {
				var names []string
				for _, pod := range g.Pods {
					names = append(names, pod.Name)
				}
				got = append(got, group{g.Priority, int(g.GracePeriod.Seconds()), names})
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// kubelet: killPods takes the pod's own if that is not longer.
func TestGrace(t *testing.T) {
	for name, c := range map[string]struct {
		period time.Duration
		own    *int64
		want   *int64
	}{
		"own is shorter":    {10 * time.Second, new(int64(5)), new(int64(5))},
		"own is longer":     {10 * time.Second, new(int64(30)), new(int64(10))},
		"none":              {10 * time.Second, nil, new(int64(10))},
		"0 s":               {0, new(int64(30)), new(int64(0))},
		"own is 0":          {10 * time.Second, new(int64(0)), new(int64(0))},
		"no limit":          {shutdown.NoLimit, new(int64(30)), nil},
		"no limit, no own ": {shutdown.NoLimit, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := makePod("web", 0)
			pod.Spec.TerminationGracePeriodSeconds = c.own
			assert.Equal(t, c.want, shutdown.Period{GracePeriod: c.period}.Grace(pod))
		})
	}
}

func TestTotalAndWithin(t *testing.T) {
	classes := shutdown.Classes(30*time.Second, 10*time.Second)
	assert.Equal(t, 30*time.Second, classes.Total())
	assert.Equal(t, shutdown.NoLimit, shutdown.Unlimited().Total())
	assert.Equal(t, shutdown.NoLimit, shutdown.Periods{{GracePeriod: time.Second},
		{GracePeriod: shutdown.NoLimit}}.Total())
	assert.Zero(t, shutdown.Periods(nil).Total())

	assert.Equal(t, classes, classes.Within(30*time.Second))
	assert.Equal(t, shutdown.Periods{seconds(0, 10), seconds(systemCritical, 5)}, classes.Within(15*time.Second))
	assert.Equal(t, shutdown.Periods{seconds(0, 3), seconds(systemCritical, 1)}, classes.Within(5*time.Second),
		"the default of logind")
	assert.Equal(t, shutdown.Periods{seconds(0, 0), seconds(systemCritical, 0)}, classes.Within(0))
	assert.Equal(t, shutdown.Unlimited(), shutdown.Unlimited().Within(time.Second))
}

func TestValidate(t *testing.T) {
	assert.NoError(t, shutdown.Unlimited().Validate())
	assert.NoError(t, shutdown.Periods(nil).Validate())
	assert.NoError(t, shutdown.Periods{seconds(1, 0), seconds(1, 5)}.Validate())
	err := shutdown.Periods{{Priority: 5, GracePeriod: time.Millisecond},
		{Priority: 1, GracePeriod: -time.Second}}.Validate()
	assert.ErrorContains(t, err, "the grace period of priority 5 is 1ms: it must be whole seconds")
	assert.ErrorContains(t, err, "the grace period of priority 1 is -1s")
	assert.ErrorContains(t, err, "priority 1 follows 5")
}

// Each pod is in one group, the groups are in order, and no pod of a later group has a lower priority than one of an
// earlier group.
func TestGroupsOfRandomPods(t *testing.T) {
	priority := rapid.Int32Range(-5, 20)
	rapid.Check(t, func(t *rapid.T) {
		periods := shutdown.ByPriority(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) shutdown.Period {
			return seconds(priority.Draw(t, "of period"), rapid.IntRange(0, 100).Draw(t, "seconds"))
		}), 1, 6).Draw(t, "periods")...)
		var pods []*v1.Pod
		for _, p := range rapid.SliceOf(priority).Draw(t, "pods") {
			pods = append(pods, makePod("web", p))
		}
		limit := time.Duration(rapid.IntRange(0, 300).Draw(t, "limit")) * time.Second
		assert.NoError(t, periods.Validate())
		assert.NoError(t, periods.Within(limit).Validate())
		assert.LessOrEqual(t, periods.Within(limit).Total(), min(limit, periods.Total()))
		n, last := 0, int32(-1000)
		for _, g := range periods.Groups(pods) {
			assert.NotEmpty(t, g.Pods)
			highest := last
			for _, pod := range g.Pods {
				assert.GreaterOrEqual(t, *pod.Spec.Priority, last)
				highest = max(highest, *pod.Spec.Priority)
			}
			n, last = n+len(g.Pods), highest
		}
		assert.Equal(t, len(pods), n)
	})
}
