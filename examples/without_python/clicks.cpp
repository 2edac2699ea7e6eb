// A server that learns clicks while it predicts them. It reads lines from the standard input:
//
//     click 17 203 990        what was shown, and clicked on
//     skip 17 203 4           what was shown, and not clicked on
//     ask 17 203 990          prints the probability of a click
//
// One thread learns, in batches of 8, on a copy of the state, which it then publishes; predictions never wait for it.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "net.h"

constexpr int kRows = 8, kFields = 3;

struct alignas(NET_ALIGNMENT) State {
    unsigned char bytes[NET_STATE_BYTES];
};

struct alignas(NET_ALIGNMENT) Arena {
    unsigned char bytes[NET_ARENA_BYTES];
};

struct Event {
    int64_t ids[kFields];
    float clicked;
};

class Model {
public:
    Model() : published_(std::make_shared<State>()), learner_([this] { learn(); }) {}

    ~Model() {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            closed_ = true;
        }
        arrived_.notify_one();
        learner_.join();
    }

    void start() { net_init(published_->bytes); }

    void add(const Event &event) {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            events_.push_back(event);
        }
        arrived_.notify_one();
    }

    // Wait until less than a batch is left to learn.
    void drain() {
        std::unique_lock<std::mutex> hold(mutex_);
        learned_.wait(hold, [this] { return events_.size() < kRows && !busy_; });
    }

    // The probability of a click; throws the library's message for ids out of range.
    float ask(const int64_t *ids, Arena &arena) const {
        std::shared_ptr<State> state;
        {
            std::lock_guard<std::mutex> hold(mutex_);
            state = published_;
        }
        float probability = 0;
        const net_predict_feeds feeds = {ids};
        const net_predict_fetches fetches = {&probability};
        if (int code = net_predict_1(state->bytes, arena.bytes, &feeds, &fetches)) throw std::runtime_error(net_error(code));
        return probability;
    }

private:
    void learn() {
        auto arena = std::make_unique<Arena>();
        for (;;) {
            std::vector<int64_t> ids;
            std::vector<float> clicked;
            std::shared_ptr<State> next;
            {
                std::unique_lock<std::mutex> hold(mutex_);
                arrived_.wait(hold, [this] { return closed_ || events_.size() >= kRows; });
                if (events_.size() < kRows) return;
                for (int row = 0; row < kRows; row++) {
                    ids.insert(ids.end(), events_[row].ids, events_[row].ids + kFields);
                    clicked.push_back(events_[row].clicked);
                }
                events_.erase(events_.begin(), events_.begin() + kRows);
                next = std::make_shared<State>(*published_);
                busy_ = true;
            }
            float loss = 0;
            const net_step_feeds feeds = {ids.data(), clicked.data()};
            const net_step_fetches fetches = {&loss};
            int code = net_step(next->bytes, arena->bytes, &feeds, &fetches);
            if (code) std::cerr << net_error(code) << "\n";
            {
                std::lock_guard<std::mutex> hold(mutex_);
                if (!code) published_ = next;
                busy_ = false;
            }
            learned_.notify_all();
        }
    }

    mutable std::mutex mutex_;
    std::condition_variable arrived_, learned_;
    std::deque<Event> events_;
    bool closed_ = false, busy_ = false;
    std::shared_ptr<State> published_;
    std::thread learner_;
};

int main() {
    Model model;
    model.start();
    auto arena = std::make_unique<Arena>();
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string word;
        Event event{};
        words >> word >> event.ids[0] >> event.ids[1] >> event.ids[2];
        if (!words || (word != "click" && word != "skip" && word != "ask")) {
            std::cout << "expected: click, skip or ask, and three ids\n";
        } else if (word == "ask") {
            model.drain();
            try {
                std::cout << model.ask(event.ids, *arena) << "\n";
            } catch (const std::exception &error) {
                std::cout << error.what() << "\n";
            }
        } else {
            event.clicked = word == "click";
            model.add(event);
        }
    }
}
