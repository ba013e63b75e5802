//go:build linux

package scsi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume/scsi"
)

const (
	iqn = "iqn.2026-01.io.kubeletkit:test"
	// within is how long the test waits in a guest, whose processors are emulated.
	within = 2 * time.Minute
)

// target is a target of the kernel on this machine, with two portals and open-iscsi.
type target struct{ *testing.T }

func (s target) sh(script string) string {
	s.Helper()
	cmd := exec.Command("sh", "-c", "cd /sys/kernel/config/target 2>/dev/null; T=iscsi/"+iqn+"/tpgt_1; "+script)
	out, err := cmd.CombinedOutput()
	require.NoError(s, err, "%s: %s", script, out)
	return strings.TrimSpace(string(out))
}

func startTarget(t *testing.T) target {
	t.Helper()
	programs, err := exec.Command("bash", "../../../test/tools/build", "open-iscsi").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(programs))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	t.Setenv("LD_LIBRARY_PATH", dir)
	s := target{t}
	s.sh("for m in configfs target_core_mod target_core_file iscsi_target_mod iscsi_tcp sd_mod loop; do modprobe $m; done; " +
		"grep -q configfs /proc/mounts || mount -t configfs configfs /sys/kernel/config; ip link set lo up; " +
		"mkdir -p /etc/iscsi /run/lock/iscsi && " +
		"sed 's/replacement_timeout = .*/replacement_timeout = 20/' " + dir + "/iscsid.conf >/etc/iscsi/iscsid.conf && " +
		"echo InitiatorName=iqn.2026-01.io.kubeletkit:node >/etc/iscsi/initiatorname.iscsi")
	files := t.TempDir()
	s.sh("mkdir -p $T/np/127.0.0.1:3260 $T/np/127.0.0.2:3260 && cd $T/attrib && echo 0 >authentication && " +
		"echo 1 >generate_node_acls && echo 1 >cache_dynamic_acls && echo 0 >demo_mode_write_protect")
	for lun := range 3 {
		s.sh(fmt.Sprintf("truncate -s 64M %[1]s/%[2]d && D=core/fileio_0/disk%[2]d && mkdir -p $D $T/lun/lun_%[2]d && "+
			"echo fd_dev_name=%[1]s/%[2]d,fd_dev_size=67108864 >$D/control && echo 1 >$D/enable && "+
			"ln -s /sys/kernel/config/target/$D $T/lun/lun_%[2]d/port", files, lun))
	}
	s.sh("echo 1 >$T/enable")
	daemon := exec.CommandContext(t.Context(), "iscsid", "-f")
	require.NoError(t, daemon.Start())
	t.Cleanup(func() { _ = daemon.Wait() })
	require.Eventually(t, func() bool {
		return exec.Command("iscsiadm", "-m", "iface", "-I", "default", "-o", "show").Run() == nil
	}, within, time.Second)
	return s
}

// sessions returns the portals with a session.
func (s target) sessions() string {
	return s.sh("cat /sys/class/iscsi_session/session*/device/connection*/iscsi_connection/*/address 2>/dev/null | sort || true")
}

// left asserts that nothing of the plugin is left on the node.
func (s target) left(rootDir string) {
	s.Helper()
	assert.Empty(s, s.sessions())
	assert.Empty(s, s.sh("ls /dev/sd* 2>/dev/null || true"))
	// Discovery makes a record of each portal of the target, as with kubelet.
	assert.Empty(s, s.sh("find /etc/iscsi/nodes /etc/iscsi/ifaces -type f 2>/dev/null | grep -v /127.0.0.2,3260,1/default || true"))
	assert.Empty(s, s.sh("find "+rootDir+"/plugins/kubernetes.io/iscsi -mindepth 1 -not -name volumeDevices"))
	assert.Empty(s, s.sh("grep "+rootDir+" /proc/mounts || true"))
}

func disk(lun int32) *v1.ISCSIVolumeSource {
	return &v1.ISCSIVolumeSource{TargetPortal: "127.0.0.1", IQN: iqn, Lun: lun}
}

// A target of the kernel, and open-iscsi: file systems, devices, portals, CHAP, a target that dies.
func TestGuestISCSI(t *testing.T) {
	if os.Getenv("KUBELETKIT_GUEST") == "" {
		t.Skip("runs in a guest only: go run ./guest")
	}
	s, root := startTarget(t), t.TempDir()
	const name, password = "name-of-chap", "password-of-chap"
	start := func(pvs ...*v1.PersistentVolume) *agent {
		p, err := scsi.NewISCSI(root, scsi.Options{UnmountTimeout: 10 * time.Second,
			Secret: secretOf(map[string][]byte{"node.session.auth.username": []byte(name),
				"node.session.auth.password": []byte(password), "discovery.sendtargets.auth.username": []byte(name),
				"discovery.sendtargets.auth.password": []byte(password)})})
		require.NoError(t, err)
		t.Cleanup(func() { require.Eventually(t, p.Idle, within, time.Second) })
		return newAgent(t, root, p, pvs...)
	}

	t.Log("a file system, two pods, the agent starts again")
	a := start()
	web := a.mustSetUp("web", disk(0))
	require.NoError(t, os.WriteFile(filepath.Join(web, "file"), []byte("stored"), 0o600))
	a = start()
	assert.Equal(t, web, a.mustSetUp("web", disk(0)))
	db := a.mustSetUp("db", disk(0))
	assert.FileExists(t, filepath.Join(db, "file"))
	other := a.mustSetUp("other", disk(1))
	assert.NoFileExists(t, filepath.Join(other, "file"))
	assert.Equal(t, "127.0.0.1", s.sessions(), "one session for the disks of a target")
	a.remove("web")
	assert.FileExists(t, filepath.Join(db, "file"))
	a = start()
	a.remove("db")
	assert.Equal(t, "127.0.0.1", s.sessions(), "the other disk is used")
	require.NoError(t, os.WriteFile(filepath.Join(other, "file"), nil, 0o600))
	a.remove("other")
	s.left(root)
	content, err := os.ReadFile(filepath.Join(a.mustSetUp("web", disk(0)), "file"))
	require.NoError(t, err)
	assert.Equal(t, "stored", string(content))
	a.remove("web")
	s.left(root)

	t.Log("a device, two portals, an initiator")
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.VolumeMode = "pv-1", ptr.To(v1.PersistentVolumeBlock)
	pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{TargetPortal: "127.0.0.1:3260", Portals: []string{"127.0.0.2"},
		IQN: iqn, Lun: 2, InitiatorName: ptr.To("iqn.2026-01.io.kubeletkit:volume")}
	a = start(pv)
	device := a.mustSetUp("web", pv)
	assert.Equal(t, "64 MiB", s.sh("echo $(($(blockdev --getsize64 "+device+") >> 20)) MiB"))
	assert.Equal(t, "127.0.0.1\n127.0.0.2", s.sessions())
	assert.Equal(t, "iqn.2026-01.io.kubeletkit:volume\niqn.2026-01.io.kubeletkit:volume",
		s.sh("cat /sys/class/iscsi_session/session*/initiatorname"))
	a = start(pv)
	assert.Equal(t, device, a.mustSetUp("web", pv))
	a.mustSetUp("db", pv)
	a.remove("web")
	assert.Equal(t, "127.0.0.1\n127.0.0.2", s.sessions())
	a.remove("db")
	s.left(root)

	t.Log("CHAP")
	s.sh(fmt.Sprintf("echo 1 >$T/attrib/authentication && for d in $T/auth iscsi/discovery_auth; do "+
		"printf %%s %s >$d/userid && printf %%s %s >$d/password; done; echo 1 >iscsi/discovery_auth/enforce_discovery_auth",
		name, password))
	_, err = a.setUp(t.Context(), "web", disk(0))
	require.ErrorContains(t, err, "failed to get any path for iscsi disk, last err seen:\nportal 127.0.0.1:3260: iscsiadm")
	a.remove("web")
	chap := disk(0)
	chap.DiscoveryCHAPAuth, chap.SessionCHAPAuth = true, true
	chap.SecretRef = &v1.LocalObjectReference{Name: "chap"}
	assert.FileExists(t, filepath.Join(a.mustSetUp("web", chap), "file"))
	a.remove("web")
	s.left(root)
	s.sh("echo 0 >$T/attrib/authentication; echo 0 >iscsi/discovery_auth/enforce_discovery_auth")

	t.Log("the target dies")
	web = a.mustSetUp("web", disk(0))
	a.mustSetUp("db", disk(1))
	file, err := os.OpenFile(filepath.Join(web, "file"), os.O_WRONLY, 0)
	require.NoError(t, err)
	s.sh("ip link set lo down")
	_, err = file.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	late, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := a.setUp(late, "late", disk(2))
		failed <- err
	}()
	require.Eventually(t, func() bool { return s.sh("cat /sys/class/iscsi_session/session*/state") == "FAILED" }, within,
		time.Second)
	a = start()
	began := time.Now()
	assert.Equal(t, web, a.mustSetUp("web", disk(0)))
	_, err = a.setUp(t.Context(), "new", disk(2))
	require.ErrorContains(t, err, "the target does not answer: the session is in the state FAILED")
	assert.Less(t, time.Since(began), 10*time.Second, "nothing waits for the target")
	cancel(errors.New("the pod is deleted"))
	require.Error(t, <-failed)
	a.remove("late")
	a.remove("new")
	for _, pod := range []string{"web", "db"} {
		began = time.Now()
		a.remove(pod)
		t.Logf("pod %s was removed in %v", pod, time.Since(began))
		assert.Less(t, time.Since(began), time.Minute)
	}
	s.left(root)

	s.sh("ip link set lo up")
	assert.FileExists(t, filepath.Join(a.mustSetUp("web", disk(0)), "file"))
	a.remove("web")
	s.left(root)
}
