package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// awaitCheckpoint waits until the checkpoint has everything that the pods need after a reboot: texts
// are what the records must have, by their directory.
func (s *nodeSuite) awaitCheckpoint(t *testing.T, texts map[string][]string) {
	t.Helper()
	Eventually(t, eventually, "checkpoint", func() error {
		for dir, want := range texts {
			files, err := filepath.Glob(filepath.Join(s.agent.Root, "podcheckpoint", dir, "*.checkpoint"))
			if err != nil {
				return err
			}
			var all strings.Builder
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				all.Write(data)
			}
			for _, text := range want {
				if !strings.Contains(all.String(), text) {
					return fmt.Errorf("no %s in %d records of %s", text, len(files), dir)
				}
			}
		}
		return nil
	})
}

// awaitReported waits until the agent itself reports that the pod fulfils the conditions.
func (s *nodeSuite) awaitReported(t *testing.T, namespace, name string, conditions ...Condition) {
	t.Helper()
	Eventually(t, eventually, "report of pod "+name, func() error {
		pods, err := s.agent.Pods()
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Namespace == namespace && pod.Name == name {
				for _, condition := range conditions {
					if err := condition(pod); err != nil {
						return err
					}
				}
				return nil
			}
		}
		return errors.New("the agent does not report it")
	})
}

// running returns the IDs of all containers that run.
func (s *nodeSuite) running(t *testing.T) (ids []string) {
	t.Helper()
	for _, c := range s.Containers(t, "") {
		if c.State == cri.ContainerState_CONTAINER_RUNNING {
			ids = append(ids, c.Id)
		}
	}
	return ids
}

// A node works without its API server for as long as it takes. The agent starts without it, takes
// its pods back and restarts what crashes, and nothing else. After a reboot the pods run again, with
// their secrets, config maps, tokens, variables of services and persistent volumes. When the API
// server is back, it shows that.
func TestNodeAutonomy(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	ns, dir := s.plane.Namespace(t, "autonomy"), t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	s.plane.Kubectl(t, "create", "-n", ns, "configmap", "cm", "--from-literal=key=one")
	s.plane.Kubectl(t, "create", "-n", ns, "secret", "generic", "db", "--from-literal=password=hunter")
	s.plane.Kubectl(t, "create", "-n", ns, "service", "clusterip", "shop", "--tcp=8080")
	s.plane.Apply(t, claimWithVolume(ns, "data", fmt.Sprintf(
		"local: {path: %s}\n  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: %s, operator: "+
			"In, values: [%s]}]}]}}", dir, v1.LabelHostname, NodeName)))
	needs := func(c v1.Container) v1.Container {
		c.Env = []v1.EnvVar{{Name: "CM",
			ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Key: "key"}}}}
		return c
	}
	works := needs(Sh("c", "echo started >> /data/log; "+Forever))
	s.create(t, ns,
		MakePod("works", Main(works), Mounted("db", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "db"}}),
			Mounted("data",
				v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})),
		MakePod("crashes", Main(needs(crashes()))),
		MakePod("finishes", Policy(v1.RestartPolicyNever),
			Main(Sh("c", "while [ ! -e /end ]; do sleep 0.1; done; exit 7"))),
		MakePod("deleted", Main(Sh("c", Forever))))
	before := map[string]*v1.Pod{}
	uids := []string(nil)
	for _, name := range []string{"works", "crashes", "finishes", "deleted"} {
		before[name] = s.await(t, ns, name, Running)
		uids = append(uids, string(before[name].UID))
	}
	address := s.plane.Kubectl(t, "get", "-n", ns, "service", "shop", "-o", "jsonpath={.spec.clusterIP}")
	// awaitNeeds waits until the pods have what they refer to.
	awaitNeeds := func(started int) {
		t.Helper()
		for _, name := range []string{"works", "crashes"} {
			assert.Equal(t, fmt.Sprintf("one %s 8080 10.99.0.1\n", address),
				s.Exec(t, name, "c", "sh", "-c", "echo $CM $SHOP_SERVICE_HOST $SHOP_SERVICE_PORT "+
					"$KUBERNETES_SERVICE_HOST"), name)
			assert.NotEmpty(t, s.Exec(t, name, "c", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"), name)
		}
		assert.Equal(t, "hunter", s.Exec(t, "works", "c", "cat", "/db/password"))
		Eventually(t, eventually, "the data", func() error {
			if got := strings.Join(logLines(dir), " "); got != strings.TrimSpace(strings.Repeat("started ", started)) {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
	}
	awaitNeeds(1)
	// A token is for a pod, so the record of the tokens has the UIDs.
	s.awaitCheckpoint(t, map[string][]string{
		"pods": uids, "objects": {`"name":"cm"`, `"name":"db"`, `"name":"kube-root-ca.crt"`}, "state": append(slices.Clone(uids), address),
	})

	s.agent.Kill(t)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "deleted", "--wait=false")
	s.plane.KillAPIServer(t)
	runs := s.running(t)
	s.agent.Start(t)
	for name := range before {
		s.awaitReported(t, ns, name, Running, s.showsNewest(t))
	}
	assert.ElementsMatch(t, runs, s.running(t), "nothing was restarted")

	s.End(t, "crashes", "c")
	s.End(t, "finishes", "c")
	s.awaitAttempt(t, "crashes", 1)
	s.awaitReported(t, ns, "finishes", Phase(v1.PodFailed), Terminated("c", 7))
	awaitNeeds(1)

	s.agent.Kill(t)
	runs = s.running(t)
	s.agent.Start(t)
	for _, name := range []string{"works", "crashes", "deleted"} {
		s.awaitReported(t, ns, name, Running, s.showsNewest(t))
	}
	s.awaitReported(t, ns, "finishes", Phase(v1.PodFailed), Terminated("c", 7))
	assert.ElementsMatch(t, runs, s.running(t), "nothing was restarted")

	s.agent.Kill(t)
	s.Reboot(t)
	s.agent.Start(t)
	for _, name := range []string{"works", "crashes", "deleted"} {
		s.awaitReported(t, ns, name, Running, s.showsNewest(t))
	}
	s.awaitReported(t, ns, "finishes", Phase(v1.PodFailed), Terminated("c", 7))
	awaitNeeds(2)
	again := map[string]string{}
	for _, name := range []string{"works", "crashes"} {
		again[name] = s.Newest(t, name, "c").Id
	}

	s.plane.StartAPIServer(t)
	awaitTruth(t, time.Now(), func() error {
		return errors.Join(s.shows(t, ns, "works", Running, s.showsNewest(t)),
			s.shows(t, ns, "crashes", Running, s.showsNewest(t)),
			s.shows(t, ns, "finishes", Phase(v1.PodFailed), Terminated("c", 7)), s.plane.NoPod(ns, "deleted"))
	})
	s.awaitGone(t, ns, "deleted")
	for name, id := range again {
		assert.Equal(t, before[name].UID, s.await(t, ns, name, Running).UID)
		assert.Equal(t, id, s.Newest(t, name, "c").Id, "nothing was restarted")
	}
	assert.NoError(t, s.noRunning(t, "finishes"))
	s.awaitNode(t, nodeReady)
}
