package fault

import (
	"fmt"
	"os/exec"
	"strings"
)

// ip runs ip in the test's namespace.
func ip(args ...string) error { return run(exec.Command("ip", args...)) }

// tc runs tc in the test's namespace.
func tc(args ...string) error { return run(exec.Command("tc", args...)) }

// batch runs commands of ip in one process, in a namespace or, if that is empty, in the test's. It ends at the first that fails.
func batch(namespace string, commands ...string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if err := run(cmd); err != nil {
		return fmt.Errorf("%w (commands: %s)", err, strings.Join(commands, "; "))
	}
	return nil
}

// run runs a command. Its error contains what the command has printed.
func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return commandError(cmd, err, string(out))
	}
	return nil
}

// output runs a command and returns what it prints to its standard output.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", commandError(cmd, err, stderr.String())
	}
	return string(out), nil
}

func commandError(cmd *exec.Cmd, err error, printed string) error {
	return fmt.Errorf("fault: %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(printed))
}
