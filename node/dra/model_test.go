package dra

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Pods share claims of two drivers. Calls of drivers and writes fail at any moment, before and after their effect,
// drivers come and go, and the agent is restarted. While the claims of a pod are prepared, the drivers have them
// prepared, and its containers have their devices. What a driver has prepared is in the state. When all pods have
// ended, nothing is prepared.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "dra")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		api := &apiServer{}
		drivers := map[string]*driverOf{"a": newDriverOf("a"), "b": newDriverOf("b")}
		driversOfClaim := map[string][]string{"x": {"a"}, "y": {"a", "b"}, "z": {"b"}, "none": nil}
		pods := map[string]*v1.Pod{
			"1": podWith("1", "x"), "2": podWith("2", "x", "y"), "3": podWith("3", "y", "z"), "4": podWith("4", "z", "x", "none"), "5": podWith("5"),
		}
		all := []*v1.Pod{pods["1"], pods["2"], pods["3"], pods["4"], pods["5"]}
		for name, list := range driversOfClaim {
			api.set(name, list, all...)
		}
		var fail string // the next call or write that fails
		maybe := func(what string) error {
			if fail == what {
				fail = ""
				return errTest
			}
			return nil
		}
		for name, d := range drivers {
			d.call = func(what string, done bool) error { return maybe(fmt.Sprint(name, " ", what, " ", done)) }
		}
		var m *Manager
		endpoints := map[string]*Endpoint{}
		start := func() {
			m = newManager(t, dir, api, Options{})
			m.file.Write = func(path string, data []byte) error {
				if err := maybe("write"); err != nil {
					return err
				}
				return os.WriteFile(path, data, 0o600)
			}
			for name, d := range drivers {
				endpoints[name] = m.Add(name, d)
				endpoints[name].SetConnected(true)
			}
		}
		start()
		running := map[string]bool{} // Prepare has succeeded
		lost := false                // an entry may be in the state that is not needed, because a write has failed
		check := func() {
			state := onDisk(t, dir)
			for name, on := range running {
				if !on {
					continue
				}
				var want []string
				for _, claim := range pods[name].Spec.ResourceClaims {
					for _, d := range driversOfClaim[claim.Name] {
						require.Truef(t, drivers[d].has(claim.Name), "claim %s of pod %s is not prepared", claim.Name,
							name)
						want = append(want, d+"="+claim.Name)
					}
					require.Contains(t, state[claim.Name].Pods, pods[name].UID)
				}
				slices.Sort(want)
				got := cdi(t, m, pods[name])
				slices.Sort(got)
				require.Equal(t, want, got)
			}
			for _, d := range drivers {
				for claim := range driversOfClaim {
					if d.has(claim) {
						require.Containsf(t, state, claim, "driver %s", d.name)
					}
				}
			}
		}
		names := rapid.SampledFrom([]string{"1", "2", "3", "4", "5"})
		fails := func(t *rapid.T) {
			fail = rapid.SampledFrom([]string{"", "", "a prepare false", "a prepare true", "b prepare false",
				"b prepare true",
				"a unprepare false", "a unprepare true", "b unprepare false", "b unprepare true", "write"}).Draw(t,
				"fail")
			lost = lost || fail == "write"
		}
		t.Repeat(map[string]func(*rapid.T){
			"prepare": func(t *rapid.T) {
				name := names.Draw(t, "pod")
				fails(t)
				failing := fail != ""
				err := prepare(m, pods[name], running[name])
				if err == nil {
					running[name] = true
				} else if !failing && len(endpoints) == 2 {
					t.Fatalf("pod %s: %v", name, err)
				}
				fail = ""
				check()
			},
			"end": func(t *rapid.T) {
				name := names.Draw(t, "pod")
				fails(t)
				failing := fail != "" && fail != "write"
				delete(running, name) // also if it fails: nothing of the pod runs
				var err error
				if rapid.Bool().Draw(t, "gone") {
					err = m.Gone(context.Background(), lifecycle.GoneRequest{Pod: runtime.RefOf(pods[name])})
				} else {
					err = end(m, pods[name])
				}
				if err != nil && !failing && len(endpoints) == 2 {
					t.Fatalf("pod %s: %v", name, err)
				}
				fail = ""
				check()
			},
			"restart": func(*rapid.T) { start(); check() },
			"driver": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "driver")
				if e, ok := endpoints[name]; ok {
					e.Remove()
					delete(endpoints, name)
				} else {
					endpoints[name] = m.Add(name, drivers[name])
				}
				check()
			},
		})
		if lost {
			start() // what the state has too much is released by Gone
		}
		for name, d := range drivers {
			if endpoints[name] == nil {
				m.Add(name, d)
			}
		}
		for _, pod := range all {
			require.NoError(t, end(m, pod))
			require.NoError(t, m.Gone(context.Background(), lifecycle.GoneRequest{Pod: runtime.RefOf(pod)}))
		}
		require.Empty(t, onDisk(t, dir))
		require.Empty(t, m.state.byPod)
		for _, d := range drivers {
			require.Empty(t, d.prepared)
		}
	})
}
