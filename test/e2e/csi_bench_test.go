package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkCSI creates n pods through the API at once, bound to the node, and deletes them when all run. Each turn has
// an agent and a driver of its own. A contestant is an agent, with the kind of its pods as ending:
//
//   - "-csi": each pod has a volume of its own of a driver, which stages and publishes.
//   - "-bare": each has an emptyDir, and a client that knows nothing else makes the calls of the driver for each.
//   - "-empty": each has an emptyDir.
//   - "-hung": each has an emptyDir, beside 10 pods with volumes of a driver that does not answer.
//
// "ratio" is that to "-bare" of minikubelet by the time until all run, "s"; "p99-ms" is from the creation of a pod until
// it is Running. KUBELETKIT_E2E_KINDS selects kinds, as in "csi,bare". The requests of a turn to the API server, for a
// pod, are printed.
//
//	KUBELET_BIN=… KUBELETKIT_E2E_PODS=100 go test -run '^$' -bench 'CSI$' -benchtime 5x -timeout 60m
func BenchmarkCSI(b *testing.B) {
	forEachSize(b, "100", benchmarkCSI)
}

func benchmarkCSI(b *testing.B, n int) {
	const name, hung = "bench.example.com", 10
	c := benchCluster(b)
	plane := NewControlPlane(b, c.Net)
	kubeconfig := plane.NodeKubeconfig(b, NodeName)
	plane.Apply(b, fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: %s}\n"+
		"spec: {attachRequired: false, fsGroupPolicy: File}\n", name))
	flags := []string{"-name", name, "-node-id", NodeName, "-controller-capabilities=", "-registry"}
	var volumes []string
	var objects strings.Builder
	for i := range n + hung {
		volumes = append(volumes, fmt.Sprintf("-volume=csi-%d=1073741824", i), fmt.Sprintf("-volume=bare-%d=1073741824", i))
		objects.WriteString(csiVolume("default", fmt.Sprintf("csi-%d", i), name, fmt.Sprintf("csi-%d", i),
			"ReadWriteOnce", "volumeMode: Filesystem") + "---\n")
	}
	plane.Apply(b, objects.String())
	pods := plane.Client.CoreV1().Pods("default")
	create := func(ctx context.Context, name, claim string, spec ...Option) error {
		source := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
		if claim != "" {
			source = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		}
		main := Sh("c", Forever)
		main.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
		pod := MakePod(name, append(spec, Grace(2), Main(main), Volume("data", source), noToken)...)
		pod.Spec.NodeName = NodeName
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	}

	var list []contestant
	kinds := strings.Split(cmp.Or(os.Getenv("KUBELETKIT_E2E_KINDS"), "csi,bare,empty,hung"), ",")
	for _, who := range contestants(b, minikubelet, baseline, kubelet) {
		for _, kind := range kinds {
			list = append(list, contestant{who.name + "-" + kind, who.options})
		}
	}
	took, round := samples{}, 0
	measure := func(who contestant, add func(unit string, value float64)) {
		round++
		who.options.Kubeconfig = kubeconfig
		agent := launch(b, c, who.options, n+hung)
		awaitNode(b, plane)
		d := StartCSIDriver(b, c.Net, filepath.Join(c.Dir, fmt.Sprintf("driver-%d", round)),
			slices.Concat(flags, []string{filepath.Join(agent.Root, "plugins_registry")}, volumes)...)
		awaitCSINode(b, plane)
		before := plane.Audited(b)
		prefix, end := fmt.Sprintf("%s-%d", who.name, round), func() {}
		switch _, kind, _ := strings.Cut(who.name, "-"); kind {
		case "csi":
			measureLives(b, c, plane, agent, prefix, n, func(ctx context.Context, name string, i int) error {
				return create(ctx, name, fmt.Sprintf("csi-%d", i))
			}, add)
		case "bare":
			measureBare(b, d, n, func(bare csidriver.Bare) {
				measureLives(b, c, plane, agent, prefix, n, func(ctx context.Context, name string, i int) error {
					if err := create(ctx, name, ""); err != nil {
						return err
					}
					return bare.Publish(ctx, fmt.Sprintf("bare-%d", i))
				}, add)
			})
		default:
			if kind == "hung" {
				end = hang(b, plane, d, hung, func(i int) error {
					return create(b.Context(), fmt.Sprintf("hung-%d-%d", round, i), fmt.Sprintf("csi-%d", n+i), func(pod *v1.Pod) {
						pod.Labels = map[string]string{"hung": ""}
					})
				})
			}
			measureLives(b, c, plane, agent, prefix, n,
				func(ctx context.Context, name string, _ int) error { return create(ctx, name, "") }, add)
		}
		for call, count := range plane.Audited(b) {
			if count -= before[call]; 10*count > n {
				fmt.Printf("%s: %.2f of %s\n", who.name, float64(count)/float64(n), call)
			}
		}
		end()
		awaitRemoved(b, c)
		d.Stop(b)
		retire(b, c, plane, agent)
	}
	measure(list[0], func(string, float64) {}) // it makes the bridge and fills the caches
	takeTurns(b, list, func(who contestant) {
		measure(who, func(unit string, value float64) { took.add(who.name, unit, value) })
	})
	took.report(b, list, "s", minikubelet+"-bare", nil)
}

// awaitCSINode waits until the node has a driver.
func awaitCSINode(b *testing.B, plane *ControlPlane) {
	b.Helper()
	Eventually(b, time.Minute, "driver in the CSINode object", func() error {
		object, err := plane.Client.StorageV1().CSINodes().Get(b.Context(), NodeName, metav1.GetOptions{})
		if err == nil && len(object.Spec.Drivers) == 0 {
			err = fmt.Errorf("no driver")
		}
		return err
	})
}

// measureBare calls f with a client that makes the calls of the driver, and unpublishes the n volumes after it.
func measureBare(b *testing.B, d *CSIDriver, n int, f func(csidriver.Bare)) {
	b.Helper()
	conn, err := grpc.NewClient("unix://"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	bare := csidriver.Bare{NodeClient: csipb.NewNodeClient(conn), Dir: b.TempDir()}
	f(bare)
	for i := range n {
		if err := bare.Unpublish(b.Context(), fmt.Sprintf("bare-%d", i)); err != nil {
			b.Fatal(err)
		}
	}
}

// hang has n pods wait for the driver. The function that it returns removes them.
func hang(b *testing.B, plane *ControlPlane, d *CSIDriver, n int, create func(i int) error) (end func()) {
	b.Helper()
	release, err := d.Inject(b.Context(), csidriver.Fault{Method: "NodeStageVolume", Hang: true})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if err := create(i); err != nil {
			b.Fatal(err)
		}
	}
	return func() {
		if err := release(b.Context()); err != nil {
			b.Fatal(err)
		}
		selector := metav1.ListOptions{LabelSelector: "hung"}
		pods := plane.Client.CoreV1().Pods("default")
		if err := pods.DeleteCollection(b.Context(), metav1.DeleteOptions{}, selector); err != nil {
			b.Fatal(err)
		}
		Eventually(b, time.Minute, "no pod hangs", func() error {
			list, err := pods.List(b.Context(), selector)
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%d pods", len(list.Items))
			}
			return err
		})
	}
}
