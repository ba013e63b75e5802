package scsi_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/node/volume/scsi"
	"github.com/kubeletkit/kubeletkit/node/volume/volumetest"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

// machine has iscsiadm, and the files of a kernel with its sessions. Disks are files with the type of their file
// systems, whose files are in directories. A LUN of a target is the same disk by all portals.
type machine struct {
	*testing.T
	root, files string

	mu    sync.Mutex
	calls []string
	// dead are portals that do not answer, away what holds umount until its context ends.
	dead map[string]bool
	away bool
	next int
	// disks are those of the devices.
	disks map[string]string
	// maps has multipathd join the devices.
	maps bool
	// scanned, if not nil, is called when an adapter is scanned.
	scanned func(host string)
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	m := &machine{T: t, root: t.TempDir(), files: t.TempDir(), dead: map[string]bool{},
		disks: map[string]string{}}
	for _, dir := range []string{"sys/class/iscsi_session", "sys/block", "dev", "proc/self"} {
		require.NoError(t, os.MkdirAll(filepath.Join(m.root, dir), 0o755))
	}
	m.put("", "proc/self/mounts")
	return m
}

func (m *machine) put(content string, elem ...string) {
	path := filepath.Join(append([]string{m.root}, elem...)...)
	require.NoError(m, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m, os.WriteFile(path, []byte(content), 0o600))
}

func (m *machine) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, strings.ReplaceAll(program+" "+strings.Join(args, " "), m.root, ""))
	last := args[len(args)-1]
	after := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 {
			return args[i+1]
		}
		return ""
	}
	switch program {
	case "iscsiadm":
		return m.iscsiadm(after("-m"), after("-p"), after("-T"), after("-I"), last)
	case "sh":
		value, file := args[3], strings.TrimPrefix(last, m.root)
		if base, ok := strings.CutSuffix(file, "/scan"); ok && m.scanned != nil {
			m.scanned(filepath.Base(base))
			return nil, nil
		} else if ok {
			m.scan(filepath.Base(base), value[strings.LastIndexByte(value, ' ')+1:])
			return nil, nil
		}
		m.unscan(strings.Split(file, "/")[3])
	case "blkid":
		content, err := os.ReadFile(last)
		if err == nil && len(content) == 0 {
			return nil, exit(2)
		}
		return fmt.Appendf(nil, "TYPE=%s\n", content), err
	case "mkfs.ext4", "mkfs.xfs":
		return nil, os.WriteFile(last, []byte(strings.TrimPrefix(program, "mkfs.")), 0o600)
	case "mount":
		source := args[len(args)-2]
		if after("-t") != "" {
			source = m.disks[filepath.Base(source)] + ".files"
		}
		return nil, unix.Mount(source, last, "", unix.MS_BIND, "")
	case "umount":
		lazy := slices.Contains(args, "-l")
		if m.away && !lazy {
			m.mu.Unlock()
			<-ctx.Done()
			m.mu.Lock()
			return nil, context.Cause(ctx)
		}
		return nil, unix.Unmount(last, map[bool]int{true: unix.MNT_DETACH}[lazy])
	}
	return nil, nil
}

func (m *machine) iscsiadm(mode, portal, iqn, iface, last string) ([]byte, error) {
	switch {
	case mode == "iface" && last == "show":
		return []byte("# BEGIN RECORD 2.1.8\niface.iscsi_ifacename = default\niface.net_ifacename = eth0\n" +
			"iface.ipaddress = <empty>\niface.transport_name = tcp\niface.initiatorname = <empty>\n# END RECORD\n"), nil
	case m.dead[portal] && last != "--logout" && last != "delete":
		return []byte("iscsiadm: cannot make connection to " + portal), exit(4)
	case mode == "node" && last == "--login":
		m.next++
		host, session := fmt.Sprintf("host%d", m.next), fmt.Sprintf("session%d", m.next)
		device := filepath.Join("sys/devices/platform", host, session)
		connection := fmt.Sprintf("connection%d:0", m.next)
		address, port, _ := strings.Cut(portal, ":")
		for name, value := range map[string]string{"address": address, "port": port, "persistent_address": address,
			"persistent_port": port} {
			m.put(value+"\n", device, connection, "iscsi_connection", connection, name)
		}
		class := filepath.Join("sys/class/iscsi_session", session)
		for name, value := range map[string]string{"targetname": iqn, "ifacename": iface, "state": "LOGGED_IN"} {
			m.put(value+"\n", class, name)
		}
		require.NoError(m, os.Symlink(filepath.Join(m.root, device), filepath.Join(m.root, class, "device")))
	case mode == "node" && last == "--logout":
		sessions, _ := filepath.Glob(filepath.Join(m.root, "sys/class/iscsi_session/*"))
		for _, class := range sessions {
			of, _ := filepath.EvalSymlinks(filepath.Join(class, "device"))
			at, _ := filepath.Glob(filepath.Join(of, "connection*/iscsi_connection/*/address"))
			address, _ := os.ReadFile(at[0])
			name, _ := os.ReadFile(filepath.Join(class, "ifacename"))
			if strings.TrimSpace(string(address))+":3260" != portal || strings.TrimSpace(string(name)) != iface {
				continue
			}
			devices, _ := filepath.Glob(filepath.Join(of, "target*/*/block/*"))
			for _, device := range devices {
				m.unscan(filepath.Base(device))
			}
			require.NoError(m, os.RemoveAll(of))
			require.NoError(m, os.RemoveAll(class))
			return nil, nil
		}
		return []byte("iscsiadm: No matching sessions found"), exit(21)
	}
	return nil, nil
}

func (m *machine) scan(host, lun string) {
	m.next++
	name, number := fmt.Sprintf("sd%d", m.next), strings.TrimPrefix(host, "host")
	session := "session" + number
	m.put("", "sys/devices/platform", host, session, "target"+number+":0:0", number+":0:0:"+lun, "block", name, "dev")
	m.device(name, filepath.Join(m.files, lun))
}

// device makes a device of a disk.
func (m *machine) device(name, disk string) {
	require.NoError(m, os.MkdirAll(disk+".files", 0o755))
	if _, err := os.Stat(disk); errors.Is(err, fs.ErrNotExist) {
		require.NoError(m, os.WriteFile(disk, nil, 0o600))
	}
	m.put("", "sys/block", name, "device/delete")
	m.put("running\n", "sys/block", name, "device/state")
	if m.maps {
		joined := "dm-" + filepath.Base(disk)
		m.put("", "sys/block", name, "holders", joined)
		m.put("mpath-3600\n", "sys/block", joined, "dm/uuid")
		_ = os.Link(disk, filepath.Join(m.root, "dev", joined))
		m.disks[joined] = disk
	}
	m.disks[name] = disk
	require.NoError(m, os.Link(disk, filepath.Join(m.root, "dev", name)))
}

func (m *machine) unscan(name string) {
	blocks, _ := filepath.Glob(filepath.Join(m.root, "sys/devices/platform/*/*/target*/*/block/"+name))
	for _, block := range blocks {
		require.NoError(m, os.RemoveAll(filepath.Dir(filepath.Dir(block))))
	}
	require.NoError(m, os.RemoveAll(filepath.Join(m.root, "sys/block", name)))
	require.NoError(m, os.RemoveAll(filepath.Join(m.root, "dev", name)))
}

// take returns the calls since the last time.
func (m *machine) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.calls
	m.calls = nil
	return out
}

// list returns the names in a directory of the kernel.
func (m *machine) list(dir string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(m.root, dir))
	require.NoError(m, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (m *machine) plugin(root string, opts scsi.Options) *scsi.Plugin {
	p, err := scsi.NewISCSI(root, scsi.WithMachine(opts, m.run, m.root))
	require.NoError(m, err)
	return p
}

func iscsiVolume(lun int32, portals ...string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name = fmt.Sprintf("pv-%d", lun)
	pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.io.test:t", Lun: lun,
		Portals: portals}
	return pv
}

// restarted returns plugins one after the other: the end of the agent ends the calls of the earlier one.
func restarted(start func() *scsi.Plugin) func(t *testing.T) volume.PersistentPlugin {
	var earlier *scsi.Plugin
	return func(t *testing.T) volume.PersistentPlugin {
		if earlier != nil {
			require.Eventually(t, earlier.Idle, time.Minute, time.Millisecond)
		}
		earlier = start()
		return earlier
	}
}

func TestISCSIConformance(t *testing.T) {
	block := iscsiVolume(2, "10.0.0.2:3260")
	block.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	for name, f := range map[string]volumetest.PersistentFactory{
		"claim": {Volume: iscsiVolume(1)},
		"pod": {Inline: &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{
			TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.io.test:t"}}}},
		"block": {Volume: block},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := newMachine(t), t.TempDir()
			m.maps = name == "block"
			f.New = restarted(func() *scsi.Plugin { return m.plugin(root, scsi.Options{}) })
			volumetest.PersistentSuite(t, f)
			assert.Empty(t, m.list("sys/class/iscsi_session"))
			assert.Subset(t, []string{"dm-2"}, m.list("dev"))
			stages, err := filepath.Glob(filepath.Join(root, "plugins/kubernetes.io/iscsi/iface-*"))
			require.NoError(t, err)
			assert.Empty(t, stages)
		})
	}
}

// Programs, arguments, paths and the record are kubelet's.
func TestISCSIFileSystem(t *testing.T) {
	m, root := newMachine(t), t.TempDir()
	pv := iscsiVolume(1)
	pv.Spec.ISCSI.FSType, pv.Spec.MountOptions = "xfs", []string{"noatime"}
	a := newAgent(t, root, m.plugin(root, scsi.Options{}), pv)
	stage := filepath.Join(root, "plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2026-01.io.test:t-lun-1")
	at := filepath.Join(a.dir("web"), "volumes/kubernetes.io~iscsi/pv-1")
	ready, err := a.setUp(t.Context(), "web", pv)
	require.NoError(t, err)
	assert.Equal(t, kruntime.Volume{HostPath: at, Relabel: true}, ready)
	const discovery = "iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default "
	const node = "iscsiadm -m node -p 10.0.0.1:3260 -T iqn.2026-01.io.test:t -I default "
	assert.Equal(t, []string{
		discovery + "-o new", discovery + "--discover", node + "-o update -n node.session.scan -v manual", node + "--login",
		node + "-o update -n node.startup -v manual",
		`sh -c echo "$1" >"$2" sh 0 0 1 /sys/class/scsi_host/host1/scan`,
		"blkid -p -s TYPE -s PTTYPE -o export /dev/sd2", "mkfs.xfs -f /dev/sd2",
		"mount -t xfs -o noatime,defaults /dev/sd2 " + stage, "mount -o bind,noatime " + stage + " " + at,
	}, m.take())

	a.mustSetUp("db", pv)
	assert.Equal(t, []string{"mount -o bind,noatime " + stage + " " +
		filepath.Join(a.dir("db"), "volumes/kubernetes.io~iscsi/pv-1")}, m.take())
	a.remove("web")
	assert.Empty(t, m.take())
	a.remove("db")
	assert.Equal(t, []string{"umount " + stage, "blockdev --flushbufs /dev/sd2", node + "--logout", node + "-o delete"},
		m.take())
}

// A kubelet finds the record, and what it has left is found.
func TestISCSISwap(t *testing.T) {
	m, root := newMachine(t), t.TempDir()
	pv := iscsiVolume(1)
	a := newAgent(t, root, m.plugin(root, scsi.Options{}), pv)
	a.mustSetUp("web", pv)
	stage := filepath.Join(root, "plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2026-01.io.test:t-lun-1")
	require.NoError(t, os.RemoveAll(filepath.Join(a.dir("web"), "plugins")), "as if a kubelet had set it up")
	a = newAgent(t, root, m.plugin(root, scsi.Options{}), pv)
	require.NoError(t, unix.Unmount(stage, unix.MNT_DETACH))
	data, err := os.ReadFile(filepath.Join(stage, "iscsi.json"))
	require.NoError(t, err)
	assert.JSONEq(t, `{"VolName":"pv-1","Portals":["10.0.0.1:3260"],"Iqn":"iqn.2026-01.io.test:t","Lun":"1",
		"InitIface":"default","Iface":"default","InitiatorName":""}`, string(data))
	require.NoError(t, os.Remove(filepath.Join(stage, "iscsi.json")), "which a kubelet has not written")
	require.NoError(t, unix.Mount(filepath.Join(m.files, "1.files"), stage, "", unix.MS_BIND, ""))
	a.remove("web")
	assert.Empty(t, m.list("sys/class/iscsi_session"))
	assert.NoDirExists(t, stage)

	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	a = newAgent(t, root, m.plugin(root, scsi.Options{}), pv)
	device := a.mustSetUp("web", pv)
	bound, err := os.Readlink(device)
	require.NoError(t, err)
	stage = filepath.Join(root,
		"plugins/kubernetes.io/iscsi/volumeDevices/iface-default/10.0.0.1:3260-iqn.2026-01.io.test:t-lun-1")
	assert.Equal(t, filepath.Join(stage, "uid-web"), bound)
	require.NoError(t, os.RemoveAll(filepath.Join(a.dir("web"), "plugins")))
	newAgent(t, root, m.plugin(root, scsi.Options{}), pv).remove("web")
	assert.Empty(t, m.list("sys/class/iscsi_session"))
	assert.NoDirExists(t, stage)
}

// A session ends with the last of its disks, of whichever volume or of the host.
func TestISCSISessionsAreShared(t *testing.T) {
	m, root := newMachine(t), t.TempDir()
	m.maps = true
	one, two := iscsiVolume(1), iscsiVolume(2, "10.0.0.2")
	two.Spec.ISCSI.TargetPortal = "10.0.0.3"
	two.Spec.ISCSI.Portals = append(two.Spec.ISCSI.Portals, "10.0.0.1")
	a := newAgent(t, root, m.plugin(root, scsi.Options{}), one, two)
	disks := func() int {
		found, err := filepath.Glob(filepath.Join(m.root, "dev/sd*"))
		require.NoError(t, err)
		return len(found)
	}
	a.mustSetUp("web", one)
	a.mustSetUp("db", two)
	assert.Len(t, m.list("sys/class/iscsi_session"), 3)
	a.remove("web")
	assert.Len(t, m.list("sys/class/iscsi_session"), 3)
	assert.Equal(t, 3, disks(), "the disk has gone")
	m.scan("host1", "7")
	m.put("/dev/"+fmt.Sprintf("sd%d", m.next)+"1 /srv ext4 rw 0 0\n/dev/sd99 / ext4 rw 0 0\n", "proc/self/mounts")
	a.remove("db")
	assert.Len(t, m.list("sys/class/iscsi_session"), 1, "the host has mounted a disk")
	assert.Equal(t, 1, disks())
}

func TestISCSIPortals(t *testing.T) {
	m, root := newMachine(t), t.TempDir()
	m.maps = true
	m.dead["10.0.0.1:3260"] = true
	pv := iscsiVolume(1, "10.0.0.2", "10.0.0.2:3260")
	a := newAgent(t, root, m.plugin(root, scsi.Options{}), pv)
	a.mustSetUp("web", pv)
	calls := m.take()
	assert.Contains(t, calls, "mkfs.ext4 -F -m0 /dev/dm-1")
	a.remove("web")
	assert.Contains(t, m.take(), "multipath -f /dev/dm-1")
	assert.Empty(t, m.list("sys/class/iscsi_session"))

	m.dead["10.0.0.2:3260"] = true
	_, err := a.setUp(t.Context(), "web", pv)
	require.ErrorContains(t, err, "failed to get any path for iscsi disk, last err seen:\nportal 10.0.0.2:3260: "+
		"iscsiadm -m discoverydb -t sendtargets -p 10.0.0.2:3260 -I default --discover: exit status 4: "+
		"iscsiadm: cannot make connection to 10.0.0.2:3260")
	a.remove("web")
	assert.NoDirExists(t, filepath.Join(root, "plugins/kubernetes.io/iscsi/iface-default"))
}

func TestISCSIInitiatorAndCHAP(t *testing.T) {
	m, root := newMachine(t), t.TempDir()
	pv := iscsiVolume(1)
	pv.Spec.ISCSI.InitiatorName = ptr.To("iqn.2026-01.io.test:i")
	pv.Spec.ISCSI.DiscoveryCHAPAuth, pv.Spec.ISCSI.SessionCHAPAuth = true, true
	pv.Spec.ISCSI.SecretRef = &v1.SecretReference{Name: "chap"}
	a := newAgent(t, root, m.plugin(root, scsi.Options{Secret: secretOf(map[string][]byte{
		"node.session.auth.username": []byte("me"), "node.session.auth.password": []byte("pass")})}), pv)
	a.mustSetUp("web", pv)
	calls := m.take()
	const iface = "iscsiadm -m iface -I 10.0.0.1:3260:pv-1 -o "
	assert.Equal(t, []string{"iscsiadm -m iface -I default -o show", iface + "new",
		iface + "update -n iface.net_ifacename -v eth0", iface + "update -n iface.transport_name -v tcp",
		iface + "update -n iface.initiatorname -v iqn.2026-01.io.test:i"}, calls[:5])
	const node = "iscsiadm -m node -p 10.0.0.1:3260 -T iqn.2026-01.io.test:t -I 10.0.0.1:3260:pv-1 "
	assert.Equal(t, []string{node + "-o update -n node.session.auth.authmethod -v CHAP",
		node + "-o update -n node.session.auth.username -v me", node + "-o update -n node.session.auth.password -v pass",
		node + "--login"}, calls[9:13])
	a.remove("web")
	assert.Contains(t, m.take(), iface+"delete")

	failing := func(ctx context.Context, program string, args ...string) ([]byte, error) {
		if slices.Contains(args, "pass") {
			return []byte("cannot set pass"), exit(7)
		}
		return m.run(ctx, program, args...)
	}
	p, err := scsi.NewISCSI(root, scsi.WithMachine(scsi.Options{Secret: secretOf(map[string][]byte{
		"node.session.auth.password": []byte("pass")})}, failing, m.root))
	require.NoError(t, err)
	a = newAgent(t, root, p, pv)
	_, err = a.setUp(t.Context(), "web", pv)
	require.ErrorContains(t, err, "-n node.session.auth.password -v ***: exit status 7: cannot set ***")
	assert.NotContains(t, err.Error(), "pass:")
	a.remove("web")
	a = newAgent(t, root, m.plugin(root, scsi.Options{}), pv)
	_, err = a.setUp(t.Context(), "web", pv)
	require.ErrorContains(t, err, "a secret for CHAP needs a node of a cluster")
	a.remove("web")
}

// A disk that does not answer is unmounted lazily, and one that only needs longer is not.
func TestISCSIUnmountHangs(t *testing.T) {
	m, root := newMachine(t), t.TempDir()
	a := newAgent(t, root, m.plugin(root, scsi.Options{UnmountTimeout: 20 * time.Millisecond}))
	source := &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.io.test:t"}
	a.mustSetUp("web", source)
	m.away = true
	err := a.m.Remove(t.Context(), kruntime.PodRef{UID: "uid-web"}, a.dir("web"))
	require.ErrorContains(t, err, "the disk answers, but has not stored everything after 20ms")
	m.put("blocked\n", "sys/block", m.list("sys/block")[0], "device/state")
	m.put("FAILED\n", "sys/class/iscsi_session/session1/state")
	_, err = a.setUp(t.Context(), "db", source)
	require.NoError(t, err, "nothing asks the disk")
	a.remove("db")
	a.remove("web")
	assert.Empty(t, m.list("sys/class/iscsi_session"))
}

func TestISCSIRefused(t *testing.T) {
	_, err := scsi.NewISCSI("relative", scsi.Options{})
	require.ErrorContains(t, err, `scsi: the root directory "relative" is not an absolute path`)
	_, err = scsi.NewISCSI("/root-dir", scsi.Options{UnmountTimeout: -1})
	require.ErrorContains(t, err, "negative")
	m, root := newMachine(t), t.TempDir()
	a := newAgent(t, root, m.plugin(root, scsi.Options{}))
	_, err = a.setUp(t.Context(), "web", &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.io:a/../../b"})
	require.ErrorContains(t, err, "cannot be that of a directory")
	a.remove("web")
	assert.Empty(t, m.take())

	missing := func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound }
	p, err := scsi.NewISCSI(root, scsi.WithMachine(scsi.Options{}, missing, m.root))
	require.NoError(t, err)
	a = newAgent(t, root, p)
	_, err = a.setUp(t.Context(), "web", &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.io:a"})
	require.ErrorContains(t, err, "install the package open-iscsi (Debian, Ubuntu, SUSE, Alpine) or iscsi-initiator-utils")
	a.remove("web")
}
