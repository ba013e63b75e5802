package oom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	podCgroup = "/kubepods/burstable/pod8d0e1dfc-0000-4000-8000-000000000001"
	cgroup    = podCgroup + "/" + id1
	id1       = "1111111111111111111111111111111111111111111111111111111111111111"
	id2       = "2222222222222222222222222222222222222222222222222222222222222222"
	invoked   = "stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999"
	sizes     = " total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:52kB oom_score_adj:999"
)

func oomKill(limit, cgroup, task string, pid int) string {
	return fmt.Sprintf(
		"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=%s,mems_allowed=0,oom_memcg=%s,task_memcg=%s,task=%s,pid=%d,uid=0", id1, limit, cgroup, task, pid)
}

// The records of kernels, and what they mean.
func TestKills(t *testing.T) {
	const memcg = "Memory cgroup out of memory: "
	global := "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=" +
		cgroup + ",task=stress,pid=7,uid=0"
	for name, test := range map[string]struct {
		records []string
		want    []Kill
	}{
		"limit of a container": {
			[]string{invoked, "memory: usage 65536kB, limit 65536kB, failcnt 29", oomKill(cgroup, cgroup, "stress", 7),
				memcg + "Killed process 7 (stress)" + sizes},
			[]Kill{{PID: 7, Process: "stress", Cgroup: cgroup, Limit: cgroup}},
		},
		"limit of a pod": {
			[]string{invoked, oomKill(podCgroup, cgroup, "stress", 7), memcg + "Killed process 7 (stress)" + sizes},
			[]Kill{{PID: 7, Process: "stress", Cgroup: cgroup, Limit: podCgroup}},
		},
		"the machine": {
			[]string{invoked, global, "Out of memory: Killed process 7 (stress)" + sizes},
			[]Kill{{PID: 7, Process: "stress", Cgroup: cgroup, Global: true}},
		},
		"Linux 4, limit of a container": {
			[]string{invoked, "Task in " + cgroup + " killed as a result of limit of " + cgroup,
				memcg + "Kill process 7 (stress) score 1999 or sacrifice child",
				"Killed process 8 (child) total-vm:1kB, anon-rss:1kB"},
			[]Kill{{PID: 8, Process: "child", Cgroup: cgroup, Limit: cgroup}},
		},
		"Linux 4, the machine": {
			[]string{invoked, "Out of memory: Kill process 7 (stress) score 9 or sacrifice child",
				"Killed process 7 (stress), UID 1000, total-vm:1kB"},
			[]Kill{{PID: 7, Process: "stress", Global: true}},
		},
		"all processes of a container": {
			[]string{invoked, oomKill(cgroup, cgroup, "stress", 7), memcg + "Killed process 7 (stress)" + sizes,
				"Tasks in " + cgroup + " are going to be killed due to memory.oom.group set",
				memcg + "Killed process 8 (sh)" + sizes, memcg + "OOM victim 7 (stress) is already exiting. Skip " +
					"killing the task"},
			[]Kill{{PID: 7, Process: "stress", Cgroup: cgroup, Limit: cgroup}, {PID: 8, Process: "sh", Group: true}},
		},
		"the kernel limits the rate of the records with the cgroup": {
			[]string{memcg + "Killed process 7 (stress)" + sizes, "Tasks in " + cgroup +
				" are going to be killed due to memory.oom.group set", memcg + "Killed process 8 (sh)" + sizes},
			[]Kill{{PID: 7, Process: "stress"}, {PID: 7, Process: "stress", Cgroup: cgroup, Group: true},
				{PID: 8, Process: "sh", Group: true}},
		},
		"the record with the cgroup is about another process": {
			[]string{oomKill(cgroup, cgroup, "stress", 7), memcg + "Killed process 9 (other)" + sizes},
			[]Kill{{PID: 9, Process: "other"}},
		},
		"names that look like the kernel's": {
			[]string{invoked, oomKill(cgroup, cgroup, "a,task=b,pid=9", 7), memcg + "Killed process 7 (a) (b))" +
				sizes},
			[]Kill{{PID: 7, Process: "a) (b)", Cgroup: cgroup, Limit: cgroup}},
		},
		"a cgroup whose name has another one": {
			[]string{invoked, oomKill(cgroup+"/x,task_memcg=/kubepods/podb/"+id2,
				cgroup+"/x,task_memcg=/kubepods/podb/"+id2, "stress", 7), memcg + "Killed process 7 (stress)" + sizes},
			[]Kill{{PID: 7, Process: "stress"}},
		},
		"a cgroup whose name has a process": {
			[]string{invoked, oomKill(cgroup, cgroup+"/x,task=init,pid=1", "stress", 7),
				memcg + "Killed process 7 (stress)" + sizes},
			[]Kill{{PID: 7, Process: "stress", Cgroup: cgroup + "/x", Limit: cgroup}},
		},
		"escapes": {
			[]string{invoked, oomKill(`/a\x5cx2d.slice`, `/a\x5cx2d.slice`, `b\x0ac`, 7),
				memcg + `Killed process 7 (b\x0ac\xff)` + sizes},
			[]Kill{{PID: 7, Process: "b?c?", Cgroup: `/a\x2d.slice`, Limit: `/a\x2d.slice`}},
		},
		"other records": {
			[]string{"usb 1-1: new device", "foo[1]: Killed process 7 (stress)", "Killed process x (y)",
				"Killed process 7 (y", "Killed process -7 (y)", "oom-kill:constraint=", "Tasks in / are fine", ""},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p Parser
			var got []Kill
			for i, r := range test.records {
				if k, ok := p.Parse(fmt.Appendf(nil, "6,%d,%d,-;%s\n SUBSYSTEM=x\n", i, 1000+i, r)); ok {
					assert.NotZero(t, k.At)
					k.At = 0
					got = append(got, k)
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// A process of a privileged container can write records. They have a facility, so that the level is 8 or more.
func TestRecordsOfProcesses(t *testing.T) {
	for _, head := range []string{"14,1,1000,-", "8,1,1000,-", "", "6", "6,1", "6,1,x,-", "-1,1,1000,-",
		"6,1,99999999999999999999,-"} {
		var p Parser
		_, ok := p.Parse([]byte(head + ";Out of memory: Killed process 7 (stress)" + sizes))
		assert.False(t, ok, head)
	}
}

// The processes of one cgroup are killed within a second. A kill after that is another one.
func TestKillLongAfterAGroup(t *testing.T) {
	var p Parser
	at := 5 * time.Second
	parse := func(text string) (Kill, bool) {
		return p.Parse(fmt.Appendf(nil, "6,1,%d,-;%s", at.Microseconds(), text))
	}
	_, ok := parse("Memory cgroup out of memory: Killed process 7 (stress)" + sizes)
	require.True(t, ok)
	at += 2 * time.Second
	_, ok = parse("Tasks in " + cgroup + " are going to be killed due to memory.oom.group set")
	assert.False(t, ok, "it is not about that kill")
	at += 2 * time.Second
	k, ok := parse("Memory cgroup out of memory: Killed process 8 (sh)" + sizes)
	assert.True(t, ok && !k.Group)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("6,1,1000,-;" + oomKill(cgroup, cgroup, "stress", 7)))
	f.Add([]byte("6,1,1000,-;Task in /a killed as a result of limit of /b\n SUBSYSTEM=x"))
	f.Add([]byte(`6,1,1000,-;Memory cgroup out of memory: Killed process 7 (a\x0a)` + sizes))
	f.Add([]byte("6,1,1000,-;Tasks in /a are going to be killed due to memory.oom.group set"))
	f.Fuzz(func(t *testing.T, record []byte) {
		var p Parser
		for range 2 {
			k, ok := p.Parse(record)
			if !ok {
				assert.Zero(t, k)
				continue
			}
			assert.Positive(t, k.PID)
			assert.LessOrEqual(t, len(k.Process), 3*maxName)
			assert.NotContains(t, k.Process, "\n")
			if uid, id := Place(k.Cgroup); uid != "" || id != "" {
				assert.Contains(t, strings.ReplaceAll(k.Cgroup, "_", "-"), string(uid))
				assert.Contains(t, k.Cgroup, id)
			}
		}
	})
}

func BenchmarkOtherRecord(b *testing.B) {
	record := []byte("6,339,5140900,-;NET: Registered protocol family 10 and a text of the usual length of a " +
		"record\n SUBSYSTEM=net\n")
	var p Parser
	for b.Loop() {
		p.Parse(record)
	}
}
