// Package job has what the program guest and the program in the guest tell each other.
package job

import "time"

// File is the path of the job in the guest, in JSON. Its directory is empty otherwise, in memory, and
// only in the guest.
const File = "/guest/job.json"

// Job is what a guest does.
type Job struct {
	// Systemd runs the commands below systemd. Otherwise nothing but them runs.
	Systemd bool
	// SwapMiB is the size of a device for swap.
	SwapMiB int
	// Silence is the time without output after which a command hangs, and is killed.
	Silence time.Duration
	// Commands run one after the other.
	Commands []Command
}

// Command is a command, its environment included.
type Command struct {
	Args, Env []string
	Dir       string
}

// Message is what a guest sends; messages follow each other in JSON.
type Message struct {
	// Command is the index of the command.
	Command int
	// Output of the command, stdout and stderr.
	Output []byte
	// Exit is set in the last message of a command.
	Exit *Exit
}

// Exit is how a command has ended.
type Exit struct {
	// Code is the exit status; 128 and the signal if a signal has ended the command.
	Code int
	// Error is set if the command could not be started, or hung.
	Error string
	Took  time.Duration
}
