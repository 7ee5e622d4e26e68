# Homebrew's formula for Linux. A release fills in version and checksum; the tap sshjobs/homebrew-tap has the result.
class Sshjobs < Formula
  desc "Run commands on remote hosts over SSH as jobs, and follow their output by cursor"
  homepage "https://github.com/sshjobs/sshjobs"
  url "https://github.com/sshjobs/sshjobs/releases/download/v@VERSION@/sshjobs-@VERSION@-x86_64-unknown-linux-gnu.tar.gz"
  sha256 "@ARCHIVE_SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on arch: :x86_64
  depends_on :linux

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
