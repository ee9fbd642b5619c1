package cli

import (
	"bytes"
	"os"
	"testing"
)

func TestAReaderThatLeftIsTold(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if readerLeft(out, new(bytes.Buffer)) {
		t.Error("a pipe that is read counts as broken")
	}
	in.Close()
	if !readerLeft(new(bytes.Buffer), out) {
		t.Error("a pipe without a reader counts as whole")
	}
}
