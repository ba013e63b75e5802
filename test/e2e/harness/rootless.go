package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RootlessUser is the user, and the group, that everything in a [ClusterOptions.Rootless] cluster runs as. No account
// has its number.
const RootlessUser = 4242

// rootlessIDs are what newuidmap and newgidmap write for a user with a range of 65535 IDs in /etc/subuid: root is the
// user itself. No other test uses the range.
var rootlessIDs = fmt.Sprintf("0 %d 1\n1 2000000000 65535\n", RootlessUser)

// rootlessMounts makes the directories writable that programs of root write to, and mounts the cgroups of the
// namespace in the place of those of the machine.
const rootlessMounts = `for dir in /run /var/lib /var/log; do mount -t tmpfs tmpfs $dir; done; mkdir /run/lock
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	for type in tmpfs cgroup2; do mount -t $type $type /sys/fs/cgroup; done; exit
fi
for dir in /sys/fs/cgroup/*/$1; do mount --bind $dir ${dir%/*}; done`

// newRootlessNetNS makes a user, a mount, a network and a cgroup namespace as [RootlessUser], as
// `unshare --user --map-root-user --map-auto --mount --net --cgroup` does for a user with ranges of IDs and delegated
// cgroups. The cgroups have the name, and are empty when it is closed.
func newRootlessNetNS(name string) (_ *NetNS, err error) {
	cgroups, leaves, err := delegate(name)
	if err != nil {
		return nil, err
	}
	user := strconv.Itoa(RootlessUser)
	args := append([]string{"-ec", inCgroups, "sh"}, cgroups...)
	keeper := exec.Command("sh", append(args, "--", "setpriv", "--reuid", user, "--regid", user, "--clear-groups",
		"unshare", "--user", "--mount", "--net", "--cgroup", "setpriv", "--pdeathsig", "KILL", "sleep", "infinity")...)
	keeper.Dir = "/"
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	n := &NetNS{keeper: keeper, cgroups: cgroups, leaves: leaves}
	defer func() {
		if err != nil {
			n.endKeeper()
		}
	}()
	dir := fmt.Sprintf("/proc/%d/", keeper.Process.Pid)
	if err := poll(10*time.Second, func() error {
		if name, err := os.ReadFile(dir + "comm"); err != nil || strings.TrimSpace(string(name)) != "sleep" {
			return fmt.Errorf("unshare: %q %w", name, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, file := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(dir+file, []byte(rootlessIDs), 0); err != nil {
			return nil, err
		}
	}
	for _, leaf := range leaves {
		procs := filepath.Join(leaf, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(keeper.Process.Pid)), 0); err != nil {
			return nil, err
		}
	}
	if n.file, err = os.Open(dir + "ns/net"); err != nil {
		return nil, err
	}
	if err := n.Do(upLoopback); err != nil {
		return nil, err
	}
	if out, err := n.command("sh", "-ec", rootlessMounts, "sh", name).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mounting in a user namespace: %w: %s", err, out)
	}
	return n, nil
}

// delegate makes cgroups of the name that are those of [RootlessUser], and one below each, in which its processes are.
func delegate(name string) (cgroups, leaves []string, err error) {
	const mount = "/sys/fs/cgroup"
	roots, files := []string{mount}, []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"}
	if exists(mount + "/cgroup.controllers") {
		err = os.WriteFile(mount+"/cgroup.subtree_control", []byte("+cpu +cpuset +memory +pids"), 0)
	} else {
		roots, _ = filepath.Glob(mount + "/*")
		files = []string{"", "cgroup.procs", "tasks"}
	}
	for _, root := range roots {
		if st, err := os.Lstat(root); err != nil || !st.IsDir() {
			continue
		}
		cgroup := filepath.Join(root, name)
		leaf := filepath.Join(cgroup, "self")
		cgroups, leaves = append(cgroups, cgroup), append(leaves, leaf)
		for _, dir := range []string{cgroup, leaf} {
			err = errors.Join(err, os.Mkdir(dir, 0o755))
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // of cgroup v1; a new cgroup has none
				if above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file)); err == nil && len(roots) > 1 {
					_ = os.WriteFile(filepath.Join(dir, file), above, 0)
				}
			}
			for _, file := range files {
				if file = filepath.Join(dir, file); exists(file) {
					err = errors.Join(err, os.Chown(file, RootlessUser, RootlessUser))
				}
			}
		}
	}
	return cgroups, leaves, err
}

// AsRoot returns the network namespace for programs of the test's user namespace.
func (n *NetNS) AsRoot() *NetNS { return &NetNS{file: n.file} }

// endKeeper ends all processes in the user namespace of the keeper, and removes its cgroups.
func (n *NetNS) endKeeper() {
	own, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", n.keeper.Process.Pid))
	for _, pid := range processes(func(proc string) bool {
		in, _ := os.Readlink(proc + "/ns/user")
		return in != "" && in == own
	}) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	n.keeper.Process.Kill()
	n.keeper.Wait()
	_ = poll(5*time.Second, func() error {
		for _, cgroup := range n.cgroups {
			RemoveCgroup(cgroup, true)
			if exists(cgroup) {
				return fmt.Errorf("%s is left", cgroup)
			}
		}
		return nil
	})
}

// inCgroups runs a command in the cgroups before "--".
const inCgroups = `while [ "$1" != -- ]; do echo $$ >$1/cgroup.procs; shift; done; shift; exec "$@"`

// inKeeper is what starts a program in the namespaces and the cgroups of the keeper, as root there. It is killed should
// the thread of the test that starts it end.
func (n *NetNS) inKeeper(bin string, args ...string) *exec.Cmd {
	all := append([]string{"-ec", inCgroups, "sh"}, n.leaves...)
	all = append(all, "--", "nsenter", "--target", strconv.Itoa(n.keeper.Process.Pid), "--user", "--mount", "--cgroup",
		"setpriv", "--pdeathsig", "KILL", bin)
	return exec.Command("sh", append(all, args...)...)
}

// rootless makes the cluster that of a user other than root. Its directory is the user's, with copies of the programs,
// since those of the test may lie where nobody else can read.
func (c *Cluster) rootless() error {
	bin := filepath.Join(c.Dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	for _, program := range []string{"containerd", "containerd-shim-runc-v2"} {
		if err := copyProgram(filepath.Join(bin, program), filepath.Join(c.bin, program)); err != nil {
			return err
		}
	}
	c.bin = bin
	return os.Chown(c.Dir, RootlessUser, RootlessUser)
}

// ownProgram gives the user of a rootless agent a copy of the program, in its directory.
func (o *AgentOptions) ownProgram() error {
	from := o.Binary
	if o.Binary = filepath.Join(o.Dir, filepath.Base(from)); exists(o.Binary) {
		return nil
	}
	return copyProgram(o.Binary, from)
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// Command runs a command of the agent's program for the agent, where the agent runs.
func (a *Agent) Command(name string, args ...string) (string, error) {
	cmd := a.net.command(a.options.Binary, append([]string{name, "--root-dir", a.Root}, args...)...)
	var out []byte
	err := a.net.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}
