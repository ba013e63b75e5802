package oom

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "hog":
		hog()
	case "parent":
		parent()
	}
	goleak.VerifyTestMain(m)
}

// helper is the variable that makes the test a process that is to be killed.
const helper = "KUBELETKIT_OOM_HELPER"

// hog uses more and more memory.
func hog() {
	time.AfterFunc(5*time.Minute, func() { os.Exit(9) })
	var kept [][]byte
	for {
		block := make([]byte, 4<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = byte(i>>12) | 1
		}
		kept = append(kept, block)
		fmt.Fprint(os.Stderr, len(kept), " ")
	}
}

// parent has a hog as its child, and fails when that is killed.
func parent() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helper+"=hog")
	fmt.Fprintln(os.Stderr, cmd.Run())
	os.Exit(3)
}
