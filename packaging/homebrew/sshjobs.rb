# Homebrew's formula. A release fills in version and checksums (packaging/formula); the tap sshjobs/homebrew-tap has the result.
class Sshjobs < Formula
  desc "Run commands on remote hosts over SSH as jobs, and follow their output by cursor"
  homepage "https://github.com/sshjobs/sshjobs"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
      url "https://github.com/sshjobs/sshjobs/releases/download/v@VERSION@/sshjobs-@VERSION@-aarch64-apple-darwin.tar.gz"
      sha256 "@aarch64-apple-darwin@"
    end
    on_intel do
      url "https://github.com/sshjobs/sshjobs/releases/download/v@VERSION@/sshjobs-@VERSION@-x86_64-apple-darwin.tar.gz"
      sha256 "@x86_64-apple-darwin@"
    end
  end
  on_linux do
    on_arm do
      url "https://github.com/sshjobs/sshjobs/releases/download/v@VERSION@/sshjobs-@VERSION@-aarch64-unknown-linux-gnu.tar.gz"
      sha256 "@aarch64-unknown-linux-gnu@"
    end
    on_intel do
      url "https://github.com/sshjobs/sshjobs/releases/download/v@VERSION@/sshjobs-@VERSION@-x86_64-unknown-linux-gnu.tar.gz"
      sha256 "@x86_64-unknown-linux-gnu@"
    end
  end

  def install
    bin.install "sshjobs"
    man1.install Dir["man/man1/*"]
    bash_completion.install "completions/sshjobs.bash" => "sshjobs"
    zsh_completion.install "completions/_sshjobs"
    fish_completion.install "completions/sshjobs.fish"
  end

  test do
    assert_match "No line was lost or repeated", shell_output("#{bin}/sshjobs demo")
  end
end
